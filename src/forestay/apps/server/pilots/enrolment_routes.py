"""Secrets that enrol one pilot, once: created here, used when a pilot registers."""

from __future__ import annotations

from fastapi import Response

from forestay.apps.server.http.answers import NothingOut, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import (
    AnEnroller,
    Enroller,
    RequestContext,
    SiteCaller,
    TheDesk,
    json_answer,
)
from forestay.apps.server.http.router import Router
from forestay.apps.server.pilots.pilot_answers import EnrolmentOut
from forestay.apps.server.pilots.schemas import EnrolmentIn, FailedChecksIn, PilotIn
from forestay.domain.pilots.enrolment import Enrolment, EnrolmentCandidate, ForAnother, NotGood, digest
from forestay.formats.jobs.job_public import time_text
from forestay.ports.operations.identity import Role
from forestay.services.scheduling.node_check_failures import UnfitMachine

router = Router(tags=["pilots"])
REFUSED = "this enrolment secret is used, expired or unknown"
"""The caller is not told which of the three it is."""


@router.post("/v1/enrolments", status_code=201, response_model=EnrolmentOut, responses=errors(body=True))
async def enrolment(context: TheDesk, who: SiteCaller, body: EnrolmentIn) -> Response:
    """A secret by which one pilot of a site may register, once and in time. It is told now and never again."""
    if who.may(Role.OPERATOR):  # a site's agent does nothing else all day, and its launches are noted
        await context.note(who, "enrol", f"site:{body.site}", launch=body.launch, jobs_of=body.owner or "")
    made = await context.services.enrolments.make(
        tenant=who.tenant,
        site=body.site,
        launch=body.launch,
        by=who.subject,
        seconds=body.seconds,
        owner=body.owner or "",
    )
    return json_answer({"secret": made.text, "expires": time_text(made.expires)}, 201)


@router.post("/v1/pilots/failed-checks", status_code=201, response_model=NothingOut, responses=errors(body=True))
async def failed_checks(context: TheDesk, who: AnEnroller, body: FailedChecksIn) -> Response:
    """A pilot reports that its machine is unfit to run jobs, and exits before it was given any."""
    site, tenant = body.site or "local", who.tenant
    if who.secret:
        newcomer = EnrolmentCandidate("", body.nonce, body.site, body.launch)
        enrolled = good(await context.services.enrolments.give_up(who.secret, newcomer))
        site, tenant = enrolled.site, enrolled.tenant
    unfit = UnfitMachine(
        tenant,
        site,
        body.host,
        body.launch,
        body.batch_job or "",
        tuple((finding.check, finding.words) for finding in body.findings),
    )
    await context.services.failed_checks.note(unfit, event=digest(body.nonce))
    return json_answer({}, 201)


async def let_in(context: RequestContext, who: Enroller, name: str, body: PilotIn) -> Enrolment:
    """The enrolment of a pilot's secret, now used by that pilot; otherwise a problem."""
    if body.nonce is None:
        raise HttpProblem(422, "a pilot with an enrolment secret must send a random nonce")
    newcomer = EnrolmentCandidate(name, body.nonce, body.site, body.launch)
    return good(await context.services.enrolments.redeem(who.secret, newcomer))


def good(enrolment: Enrolment | NotGood | ForAnother) -> Enrolment:
    """The enrolment, or the problem as an exception."""
    if isinstance(enrolment, NotGood):
        raise HttpProblem(401, REFUSED)
    if isinstance(enrolment, ForAnother):
        raise HttpProblem(403, enrolment.reason)
    return enrolment
