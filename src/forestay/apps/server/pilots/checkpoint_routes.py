"""Checkpoints on their way: from the pilot that committed one, and to the pilot whose attempt begins with it."""

from __future__ import annotations

from fastapi import Response

from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import PilotCaller, RequestContext, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.pilots.claim_outputs import ClaimedAttempt, is_its_own
from forestay.apps.server.pilots.claim_tasks import files_on_element
from forestay.apps.server.pilots.pilot_answers import CheckpointReplyOut
from forestay.apps.server.pilots.schemas import CheckpointReportIn, ManifestIn, SavedIn
from forestay.domain.jobs.claim import CheckpointReport
from forestay.domain.jobs.job_document import Manifest, Token
from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import manifest_public
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.storage_access import element_path

router = Router(prefix="/v1/pilots", tags=["pilots"])


@router.post("/{pilot}/checkpoints", response_model=CheckpointReplyOut, responses=errors(404, 409, body=True))
async def checkpoints(context: TheDesk, who: PilotCaller, pilot: str, body: CheckpointReportIn) -> Response:
    """A checkpoint of a running attempt, for the pilot that holds its claim."""
    attempt = ClaimedAttempt(who.tenant, body.job, Token(body.generation, body.attempt), body.claim)
    if not is_its_own(context, attempt, body.checkpoint.manifest.path, body.checkpoint.number):
        raise HttpProblem(409, "the manifest is not in the attempt's own folder")
    report = report_from(body.checkpoint)
    answer = await context.services.checkpoints.save(body.job, report, claim=body.claim, pilot=pilot, tenant=who.tenant)
    stored = await context.settled_report(who, "job.checkpoint", body.job, answer)
    checkpoint = stored.document.checkpoint
    return json_answer({"path": checkpoint.manifest.path if checkpoint is not None else ""})


def report_from(body: SavedIn) -> CheckpointReport:
    return CheckpointReport(manifest_from(body.manifest), body.content, body.number)


def manifest_from(body: ManifestIn) -> Manifest:
    return Manifest(body.path, body.sha256, body.files, body.bytes)


async def stored_checkpoints(context: RequestContext, granted: list[Stored]) -> dict[str, Json]:
    """For each claimed job with a checkpoint, the description of the checkpoint in its claim. One that no longer exists is reported as missing."""
    checkpoints: dict[str, Json] = {}
    for stored in granted:
        checkpoint = stored.document.checkpoint
        if checkpoint is None:
            continue
        manifest = checkpoint.manifest
        about: Json = {"attempt": checkpoint.token.attempt, "manifest": manifest_public(manifest)}
        if element_path(manifest.path) is not None:
            try:
                about["files"] = await files_on_element(context, stored.document.tenant, manifest)
            except Permanent as error:
                about["missing"] = str(error)
        checkpoints[stored.document.id] = {"checkpoint": about}
    return checkpoints
