"""Signed addresses for the outputs of a job: a pilot requests them for each upload and holds no key itself."""

from __future__ import annotations

from fastapi import Response

from forestay.apps.server.data.file_answers import UploadsOut
from forestay.apps.server.data.schemas import UploadsIn
from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import PilotCaller, RequestContext, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.pilots.claim_outputs import attempt_folder
from forestay.apps.server.pilots.claim_tasks import task_uploads
from forestay.domain.jobs.claim import not_held
from forestay.domain.jobs.inputs import wrong_name
from forestay.domain.jobs.job_document import JobDocument
from forestay.formats.ga4gh.tes_job import MARK, OUTPUTS
from forestay.ports.errors import Permanent

router = Router(prefix="/v1/pilots", tags=["pilots"])


@router.post("/{pilot}/uploads", response_model=UploadsOut, responses=errors(404, 409, body=True))
async def uploads(context: TheDesk, who: PilotCaller, pilot: str, body: UploadsIn) -> Response:
    """Addresses to which the files of one attempt may be put, for the pilot that holds its claim."""
    stored = await context.job(body.job, who)
    held = stored.document.claim
    if held is None or held.id != body.claim or held.pilot != pilot:
        await context.settled_report(who, "job.upload", body.job, not_held(stored.document, body.claim, pilot))
    if stored.document.labels.get(MARK) == OUTPUTS:
        return await _task_uploads(context, stored.document, body)
    view = await context.view(pilot, who.tenant)
    elements = context.services.components.elements
    element = elements.outputs_for(who.tenant, view.site, view.element)
    if element is None:
        raise HttpProblem(409, "no storage element is configured for the outputs of this pilot")
    wrong = [
        {"at": f"body.files.{place}.path", "detail": why}
        for place, file in enumerate(body.files)
        if (why := wrong_name(file.path))
    ]
    if wrong:
        raise HttpProblem(422, f"{len(wrong)} path(s) are invalid", wrong[:100])
    folder = attempt_folder(element, who.tenant, body.job, stored.document.token, body.claim, body.checkpoint)
    paths = {file.path: f"{folder}/{file.path}" for file in body.files}
    try:
        signed = elements.uploads(element.name, list(paths.values()))
    except Permanent as error:
        raise HttpProblem(409, str(error)) from error
    return json_answer({"urls": {name: signed[path] for name, path in paths.items()}, "base": folder})


async def _task_uploads(context: RequestContext, document: JobDocument, body: UploadsIn) -> Response:
    """The same for the outputs of a task, which go where its client said."""
    try:
        signed = await task_uploads(context, document, [file.path for file in body.files])
    except Permanent as error:
        raise HttpProblem(409, str(error)) from error
    if signed is None:
        raise HttpProblem(409, "the task of these outputs does not exist")
    return json_answer({"urls": signed, "base": ""})
