"""Routes for people and programs: submit, search, read, steer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.responses import PlainTextResponse

from forestay.apps.config.downstream_settings import downstream_for
from forestay.apps.server.description import COUNTS, SORTS, filters
from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.approvals import WAITS, alone, ask
from forestay.apps.server.http.event_stream import EventStream, event
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import (
    Operator,
    RequestContext,
    Submitter,
    TheDesk,
    Viewer,
    json_answer,
    settled,
)
from forestay.apps.server.http.router import Router
from forestay.apps.server.jobs.job_answers import (
    CountsOut,
    JobOut,
    JobsOut,
    OutputsOut,
    SpecificationOut,
    StoryOut,
    SubmittedOut,
    WhyRunOut,
)
from forestay.apps.server.jobs.job_filters import job_query
from forestay.apps.server.jobs.job_log import followed_log, stored_log
from forestay.apps.server.jobs.schemas import ContinueIn, ForceIn, ReasonIn, ReleaseIn, SubmitIn
from forestay.apps.server.jobs.submissions import check_producers, submissions_from
from forestay.domain.exceptions.incidents.inbox import SOMEBODY, group_key_of
from forestay.domain.exceptions.incidents.incident import failure_incident_id
from forestay.domain.jobs.job_document import State, Token
from forestay.domain.jobs.job_spans import read_traceparent
from forestay.domain.jobs.lifecycle import TransitionRefused, whole_story
from forestay.domain.jobs.reuse import why_run
from forestay.formats.jobs.job_public import job_public, manifest_public, specification_public, story_public, time_text
from forestay.ports.jobs.job_store import COUNT_FIELDS, SORT_FIELDS, Record, Stored
from forestay.ports.operations.identity import Principal, Role
from forestay.services.shared.checked_writer import Answer, chapter_of

router = Router(prefix="/v1", tags=["jobs"])
MAX_RECORDS = 1000
STEERED = errors(404, 409, body=True)


def kept_trace(traceparent: str | None) -> str:
    """The stored form of the header; an invalid one is ignored, as its specification requires."""
    return traceparent if traceparent is not None and read_traceparent(traceparent) is not None else ""


def shown(stored: Stored, more: Mapping[str, str] = MappingProxyType({})) -> Response:
    version = f"{stored.version.number}.{stored.version.term}"
    return json_answer(job_public(stored.document, version) | dict(more), headers={"ETag": f'"{version}"'})


@router.post("/jobs", status_code=201, response_model=SubmittedOut, responses=errors(409, body=True))
async def submit(
    context: TheDesk,
    who: Submitter,
    body: SubmitIn,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    traceparent: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Submit 1 to 10,000 jobs."""
    parts = context.services.components
    where = partial(downstream_for, parts.settings.downstreams)
    asked = await submissions_from(
        body, who, parts.notify, parts.staging, where, context.services.requirements.problems
    )
    await check_producers(asked, parts.store)
    context.know(submission.specification for submission in asked)
    accepted = await context.services.submit.submit(
        asked, by=who.subject, key=idempotency_key or None, trace=kept_trace(traceparent)
    )
    return json_answer({"jobs": [{"id": job.id, "created": job.created} for job in accepted]}, 201)


@router.get("/jobs", response_model=JobsOut, responses=errors(400), openapi_extra=filters())
async def search(
    request: Request,
    context: TheDesk,
    who: Viewer,
    sort: Annotated[str, Query(json_schema_extra={"enum": SORTS})] = "-created",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """Find jobs by any of their fields."""
    if sort.removeprefix("-") not in SORT_FIELDS:
        raise HttpProblem(422, f"cannot sort by {sort[:64]}; use one of {', '.join(sorted(SORT_FIELDS))}")
    query = job_query(request.query_params, who.tenant)
    page = await context.services.components.store.search(query, sort=sort, limit=limit, cursor=cursor)
    needing = await _needing_somebody(context, page.jobs)
    jobs = [
        job_public(job.document, f"{job.version.number}.{job.version.term}")
        | await _waiting(context, job)
        | needing.get(job.document.id, {})
        for job in page.jobs
    ]
    return json_answer({"jobs": jobs, "cursor": page.cursor})


@router.get("/jobs/counts", response_model=CountsOut, responses=errors(400), openapi_extra=filters())
async def counts(
    request: Request,
    context: TheDesk,
    who: Viewer,
    by: Annotated[str, Query(json_schema_extra={"enum": COUNTS})] = "state",
) -> Response:
    """How many jobs there are for each value of a field."""
    if by not in COUNT_FIELDS:
        raise HttpProblem(422, f"cannot count by {by[:64]}; use one of {', '.join(sorted(COUNT_FIELDS))}")
    query = job_query(request.query_params, who.tenant)
    return json_answer({"counts": dict(await context.services.components.store.count(query, by=by))})


@router.get("/jobs/{job}", response_model=JobOut, responses=errors(404))
async def read(context: TheDesk, who: Viewer, job: str) -> Response:
    """One job."""
    stored = await context.job(job, who)
    needing = await _needing_somebody(context, [stored])
    return shown(stored, await _waiting(context, stored) | needing.get(stored.document.id, {}))


async def _waiting(context: RequestContext, stored: Stored) -> dict[str, str]:
    """Why no pilot gets a job although slots may be free: a quota, the pilots themselves, or licences."""
    document = stored.document
    if document.state is not State.AVAILABLE:
        return {}
    services = context.services
    for asked in (services.quotas, services.requirements, services.seats):
        if waiting := await asked.waits_for(document):
            return {"waiting": waiting}
    return {}


async def _needing_somebody(context: RequestContext, jobs: Sequence[Stored]) -> Mapping[str, dict[str, str]]:
    """Of faulted jobs those whose failure waits for somebody: its incident, and for what; one read for all."""
    names = {failure_incident_id(job.document): job.document.id for job in jobs if job.document.state is State.FAULTED}
    known = await context.services.components.incidents.get_statuses(list(names)) if names else {}
    waits = {name: group_key_of(stored.status).waits for name, stored in known.items()}
    return {
        names[name]: {"incident": name, "waits_for": wait.value} for name, wait in waits.items() if wait in SOMEBODY
    }


@router.get("/jobs/{job}/specification", response_model=SpecificationOut, responses=errors(404))
async def specification(context: TheDesk, who: Viewer, job: str) -> Response:
    """What the job runs."""
    name = (await context.job(job, who)).document.specification
    specifications = await context.specifications([name])
    if name not in specifications:
        raise HttpProblem(404, "its specification does not exist")
    return json_answer(specification_public(specifications[name]))


@router.get("/jobs/{job}/story", response_model=StoryOut, responses=errors(404))
async def story(context: TheDesk, who: Viewer, job: str) -> Response:
    """Every transition in words, with the evidence of failures."""
    stored = await context.job(job, who)
    records = await context.services.components.store.find_records(job=job, tenant=who.tenant, limit=MAX_RECORDS)
    chapters = [chapter_of(record) for record in records if record.kind == "chapter"]
    lines = whole_story(stored.document, chapters)
    evidence = [
        _evidence(record) for record in records if record.kind in ("evidence", "late-completion", "alert", "staging")
    ]
    return json_answer({"story": story_public(lines), "evidence": evidence})


@router.get("/jobs/{job}/why-run", response_model=WhyRunOut, responses=errors(404))
async def why(context: TheDesk, who: Viewer, job: str) -> Response:
    """Why the job ran although results of earlier runs may be reused: the fields that differ from the nearest earlier job."""
    return json_answer(why_run((await context.job(job, who)).document)._asdict())


def _evidence(record: Record) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": record.kind, "at": time_text(record.at), **record.body}
    if isinstance(ending := shown.get("ending"), dict):
        shown["ending"] = ending | {"started": time_text(ending.get("started"))}
    return shown


@router.get(
    "/jobs/{job}/log",
    response_class=PlainTextResponse,
    responses=errors(404) | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def log(
    context: TheDesk,
    who: Viewer,
    job: str,
    *,
    attempt: Annotated[int | None, Query(ge=1, le=2**31)] = None,
    follow: bool = False,
) -> Response:
    """The output of an attempt: its end, or, when followed, everything from now on."""
    stored = await context.job(job, who)
    if follow:
        if stored.document.claim is None:
            await stored_log(context, stored.document, attempt)  # reports a missing log before a stream begins
        return EventStream(_log_events(context, stored, attempt), context.stopping)
    text = await stored_log(context, stored.document, attempt)
    return Response(text, media_type="text/plain; charset=utf-8")


async def _log_events(context: RequestContext, stored: Stored, attempt: int | None) -> AsyncGenerator[bytes, None]:
    async for text in followed_log(context, stored, attempt):
        yield event("log", {"text": text}) if text else event("ping", {})
    yield event("end", {})


@router.get("/jobs/{job}/outputs", response_model=OutputsOut, responses=errors(404))
async def outputs(context: TheDesk, who: Viewer, job: str) -> Response:
    """Where the committed outputs are."""
    winner = await context.services.outputs.winner(await context.job(job, who))
    if winner is None or winner.manifest is None:
        raise HttpProblem(404, "the job has no committed outputs")
    return json_answer({"attempt": winner.token.attempt, "manifest": manifest_public(winner.manifest)})


async def _steerable(
    context: RequestContext, who: Principal, job: str, what: str, why: str = "", **detail: object
) -> str:
    """The job's owner, if the caller may steer the job. If it belongs to another person, that is recorded in the audit log before anything is done."""
    owner = (await context.job(job, who)).document.owner
    if owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the job belongs to {owner}; only the owner or an operator may do this")
    await context.note(who, f"job.{what}", job, owner=owner, why=why, **detail)
    return owner


async def _steered(
    context: RequestContext, who: Principal, job: str, what: str, owner: str, answer: Answer
) -> Response:
    """The job after the action; that it was refused is recorded in the audit log, after the action itself."""
    if isinstance(answer, TransitionRefused):
        await context.note_refusal(who, f"job.{what}", job, answer.reason, owner=owner)
    return shown(settled(answer))


@router.post("/jobs/{job}/cancel", response_model=JobOut, responses=STEERED)
async def cancel(context: TheDesk, who: Submitter, job: str, body: ReasonIn | None = None) -> Response:
    """End the job."""
    reason = body.reason if body else ""
    owner = await _steerable(context, who, job, "cancel", reason)
    answer = await context.services.steer.cancel(job, by=who.subject, reason=reason)
    return await _steered(context, who, job, "cancel", owner, answer)


@router.post("/jobs/{job}/hold", response_model=JobOut, responses=STEERED)
async def hold(context: TheDesk, who: Submitter, job: str, body: ReasonIn | None = None) -> Response:
    """Suspend the job; a running attempt may finish, and its end is kept."""
    reason = body.reason if body else ""
    owner = await _steerable(context, who, job, "hold", reason)
    answer = await context.services.steer.hold(job, holder=who.subject, by=who.subject, reason=reason)
    return await _steered(context, who, job, "hold", owner, answer)


@router.post("/jobs/{job}/continue", response_model=JobOut, responses=STEERED)
async def carry_on(context: TheDesk, who: Submitter, job: str, body: ContinueIn | None = None) -> Response:
    """Remove a hold."""
    holder = (body.holder if body else None) or who.subject
    if holder != who.subject and not who.may(Role.OPERATOR):
        await context.job(job, who)
        raise HttpProblem(403, "only an operator may remove another person's hold")
    owner = await _steerable(context, who, job, "continue", holder=holder)
    answer = await context.services.steer.let_go(job, holder=holder, by=who.subject)
    return await _steered(context, who, job, "continue", owner, answer)


@router.post("/jobs/{job}/release", response_model=JobOut, responses=STEERED | WAITS)
async def release(context: TheDesk, who: Operator, job: str, body: ReleaseIn) -> Response:
    """Release a claim by hand, if it is still the one that was seen."""
    owner = (await context.job(job, who)).document.owner
    if not alone(context, who, "release", "job", owner=owner):
        act = {"kind": "job.release", "attempt": body.expected_attempt, "claim": body.expected_claim}
        words = f"release the claim of attempt {body.expected_attempt} of job {job}"
        return await ask(context, who, "release", job, owner=owner, why=body.reason, act=act, words=words)
    owner = await _steerable(context, who, job, "release", body.reason, attempt=body.expected_attempt)
    answer = await context.services.steer.release(
        job, attempt=body.expected_attempt, claim=body.expected_claim, by=who.subject, reason=body.reason
    )
    return await _steered(context, who, job, "release", owner, answer)


@router.post("/jobs/{job}/retry", response_model=JobOut, responses=STEERED)
async def retry(context: TheDesk, who: Operator, job: str, body: ReasonIn | None = None) -> Response:
    """Let a faulted job be claimed again."""
    reason = body.reason if body else ""
    owner = await _steerable(context, who, job, "retry", reason)
    answer = await context.services.steer.retry(job, by=who.subject, reason=reason)
    return await _steered(context, who, job, "retry", owner, answer)


@router.post("/jobs/{job}/force-complete", response_model=JobOut, responses=STEERED | WAITS)
async def force_complete(context: TheDesk, who: Operator, job: str, body: ForceIn) -> Response:
    """Declare the job done."""
    return await _force(context, who, job, body, State.FORCED_COMPLETE)


@router.post("/jobs/{job}/force-fail", response_model=JobOut, responses=STEERED)
async def force_fail(context: TheDesk, who: Operator, job: str, body: ForceIn) -> Response:
    """Declare the job failed."""
    return await _force(context, who, job, body, State.FAILED)


async def _force(context: RequestContext, who: Principal, job: str, body: ForceIn, to: State) -> Response:
    what = "force-complete" if to is State.FORCED_COMPLETE else "force-fail"
    owner = (await context.job(job, who)).document.owner
    if not alone(context, who, what, "job", owner=owner):
        act = {"kind": "job.force", "to": to.value, "generation": body.expected_generation}
        act["attempt"] = body.expected_attempt
        words = f"mark job {job} as {'complete' if to is State.FORCED_COMPLETE else 'failed'} at attempt {body.expected_attempt}"
        return await ask(context, who, what, job, owner=owner, why=body.reason, act=act, words=words)
    owner = await _steerable(context, who, job, what, body.reason, attempt=body.expected_attempt)
    expected = Token(body.expected_generation, body.expected_attempt)
    answer = await context.services.steer.force(job, to=to, expected=expected, by=who.subject, reason=body.reason)
    return await _steered(context, who, job, what, owner, answer)
