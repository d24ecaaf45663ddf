"""GA4GH's Workflow Execution Service 1.1 over Forestay's runs, for any of its clients."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any

import orjson
from fastapi import Header, Query, Request, Response
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse

from forestay.apps.server.flows.flow_routes import FlowVerbIn, engine_of, verb_of
from forestay.apps.server.flows.run_routes import is_ours, run_of_tenant
from forestay.apps.server.http.problems import TITLES, HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.insertion.wes_answers import (
    ErrorOut,
    RunIdOut,
    RunLogOut,
    RunStatusOut,
    ServiceInfoOut,
    TaskLogOut,
    TasksOut,
    WesRunsOut,
)
from forestay.apps.server.jobs.job_log import stored_log
from forestay.domain.flows.events import VerbKind
from forestay.domain.jobs.job_document import JobDocument
from forestay.formats.flows.flow_languages import LANGUAGES, PYTHON
from forestay.formats.flows.run_story import story_public
from forestay.formats.ga4gh.peer_offer import offer_tags
from forestay.formats.ga4gh.wes_run import (
    RunRequest,
    read_request,
    run_log_json,
    service_info_json,
    sub_run_json,
    summary_json,
    task_json,
)
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import RunHistoryEvent, RunSummary
from forestay.ports.jobs.job_store import JobQuery
from forestay.ports.operations.identity import Principal, Role
from forestay.services.flows.run_starter import RunStarter
from forestay.services.insertion.wes_run_starter import MAX_FILES, InvalidFlow, WesRunStarter
from forestay.services.insertion.wes_runs import RunCursor, WesRun, WesRuns

router = Router(prefix="/ga4gh/wes/v1", tags=["wes"])
ATTACHMENT = "workflow_attachment"
MAX_FIELD = 1 << 20
"""The most bytes of one field of a request that is not a file."""
MAX_PAGE = 1000
PAGE = 100
STATUSES = (400, 401, 403, 404, 501, 503)
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "workflow_params": {"type": "string", "description": "A JSON object."},
        "workflow_type": {"type": "string"},
        "workflow_type_version": {"type": "string"},
        "tags": {"type": "string", "description": "A JSON object whose values are strings."},
        "workflow_engine": {"type": "string"},
        "workflow_engine_version": {"type": "string"},
        "workflow_engine_parameters": {"type": "string", "description": "A JSON object whose values are strings."},
        "workflow_url": {"type": "string"},
        ATTACHMENT: {"type": "array", "items": {"type": "string", "format": "binary"}},
    },
    "required": ["workflow_type", "workflow_type_version", "workflow_url"],
}
FORM = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
Size = Annotated[int, Query(ge=1, le=2**31)]
Token = Annotated[str, Query(max_length=6000)]


def wes_errors(*more: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": TITLES[status], "model": ErrorOut} for status in sorted({*STATUSES, *more})}


def runs_of(context: RequestContext) -> WesRuns:
    engine_of(context)
    runs = context.services.runs
    assert runs is not None  # noqa: S101 - where there is an engine, there are runs
    return runs


def _base(context: RequestContext) -> str:
    return f"{context.services.components.settings.public_url}{router.prefix}"


@router.get("/service-info", response_model=ServiceInfoOut, responses=wes_errors())
async def service_info(context: TheDesk, who: Viewer) -> Response:
    """The service's description and capabilities."""
    settings = context.services.components.settings
    types = {name: language.versions for name, language in LANGUAGES.items()}
    if context.services.components.folder.place is not None:
        types |= PYTHON
    protocols = {"file", "http", "https"} | {
        door.kind.value
        for element in context.services.components.elements.elements.values()
        if element.serves(who.tenant)
        for door in element.doors
    }
    info = service_info_json(
        name=settings.public_url.partition("://")[2],
        version=version("forestay"),
        url=settings.public_url,
        protocols=protocols,
        types=types,
        counts=await runs_of(context).counts(who.tenant),
        tags=offer_tags(await context.services.offer.offer(who.tenant), context.services.components.clock.now()),
    )
    return json_answer(info)


@router.get("/runs", response_model=WesRunsOut, responses=wes_errors())
async def list_runs(context: TheDesk, who: Viewer, page_size: Size = PAGE, page_token: Token = "") -> Response:
    """The runs that were requested here, the oldest first: those that existed when the first page was requested, each in its present state."""
    position = _position(page_token)
    page = await runs_of(context).page(who.tenant, limit=min(page_size, MAX_PAGE), position=position)
    shown = [
        summary_json(run.id, run.status.state, run.status.started, run.status.ended, run.request.tags)
        for run in page.runs
    ]
    return json_answer({"runs": shown, "next_page_token": _token(list(page.position)) if page.position else ""})


@router.post("/runs", response_model=RunIdOut, responses=wes_errors(408, 409, 413), openapi_extra=FORM)
async def run_workflow(
    request: Request,
    context: TheDesk,
    who: Submitter,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    forestay_stamp: Annotated[int, Header(ge=0, le=2**53)] = 0,
) -> Response:
    """Start a run. With an idempotency key, a repetition of the same request returns the same run."""
    asked, files = await _read(request)
    parts = context.services.components
    runs = RunStarter(parts.flows, engine_of(context), parts.ids, parts.checks)
    starting = WesRunStarter(parts.flows, runs, parts.store, parts.folder, context.services.attachments, parts.clock)
    key = idempotency_key or None
    await _hold_lease(context, who, starting, key, forestay_stamp)
    try:
        run = await starting.start(asked, files, tenant=who.tenant, owner=who.subject, key=key)
    except InvalidFlow as error:
        raise HttpProblem(
            400, str(error), [{"at": asked.url, "detail": problem} for problem in error.problems[:100]]
        ) from error
    return json_answer({"run_id": run})


async def _hold_lease(
    context: RequestContext, who: Principal, starting: WesRunStarter, key: str | None, stamp: int
) -> None:
    """A peer's run is started only under a lease and with a key; if it was started before, it is only reported again."""
    peer, leases = context.services.components.peers.sender(who), context.services.leases
    if peer is None or leases is None:
        return
    if key is None:
        raise HttpProblem(400, "a peer sends each run under an Idempotency-Key")
    if not await starting.started(who.tenant, who.subject, key):
        await leases.hold(peer, stamp)


async def _read(request: Request) -> tuple[RunRequest, Mapping[str, bytes]]:
    """Read the form of a request, with bounds on every part."""
    try:
        form = await request.form(max_files=MAX_FILES, max_fields=50, max_part_size=MAX_FIELD)
    except HTTPException:
        raise
    except (ValueError, LookupError) as error:
        raise HttpProblem(400, "the form cannot be read: its text is not UTF-8") from error
    fields: dict[str, str] = {}
    files: dict[str, bytes] = {}
    try:
        for name, value in form.multi_items():
            if name == ATTACHMENT and isinstance(value, UploadFile):
                file = value.filename or ""
                if file in files:
                    raise HttpProblem(400, f"several attachments have the name {file[:200]}")
                files[file] = await value.read()
            elif name in fields or name == ATTACHMENT:
                why = "an attachment is a file with a name" if name == ATTACHMENT else "the field occurs twice"
                raise HttpProblem(400, f"{name[:100]}: {why}")
            elif isinstance(value, UploadFile):
                fields[name] = _text(name, await value.read(MAX_FIELD + 1))
            else:
                fields[name] = value
    finally:
        await form.close()
    asked, wrong = read_request(fields)
    if asked is None:
        raise HttpProblem(
            400, f"{len(wrong)} field(s) are invalid", [request_error._asdict() for request_error in wrong]
        )
    return asked, files


def _text(name: str, content: bytes) -> str:
    if len(content) > MAX_FIELD:
        raise HttpProblem(400, f"{name[:100]} has more than {MAX_FIELD} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise HttpProblem(400, f"{name[:100]} is not UTF-8") from error


@router.get("/runs/{run}", response_model=RunLogOut, responses=wes_errors())
async def run_log(context: TheDesk, who: Viewer, run: str) -> Response:
    """A whole run: the request, its state, its outputs."""
    flow_run, known = await _run(context, who, run)
    state: Mapping[str, Any] = {"outputs": {}, "reason": "", "params": {}}
    if flow_run is not None:
        with suppress(NotFound):
            state = await engine_of(context).state(run)
    outputs = await context.services.run_outputs.shown(who.tenant, run, state["outputs"])
    request = known.request
    if not request.url and flow_run is not None:
        request = RunRequest("FORESTAY", "1", flow_run.version, state["params"])
    status = known.status
    answer = run_log_json(
        run,
        request,
        status.state,
        name=flow_run.name if flow_run is not None else "",
        started=status.started,
        ended=status.ended,
        outputs=outputs,
        reason=str(state["reason"] or ""),
        url=f"{_base(context)}/runs/{run}",
    )
    return json_answer(answer)


async def _run(context: RequestContext, who: Principal, run: str) -> tuple[RunSummary | None, WesRun]:
    """A run of the caller's tenant, and its run; any run of ours can be read as a run, sub-flows' too. No run: the engine has forgotten it."""
    runs = runs_of(context)
    known = await runs.get(who.tenant, run) if 0 < len(run) <= 64 else None
    try:
        flow_run = await run_of_tenant(context, run, who)
    except HttpProblem:
        if known is None:
            raise HttpProblem(404, f"there is no run {run[:64]} in tenant {who.tenant}") from None
        return None, known
    if not is_ours(flow_run):
        raise HttpProblem(404, f"run {run[:64]} belongs to another engine")
    if known is None:
        status = (await runs.statuses(who.tenant, {run: flow_run.started}))[run]
        known = WesRun(run, flow_run.started, flow_run.owner, RunRequest("FORESTAY", "1", ""), status)
    return flow_run, known


@router.get("/runs/{run}/status", response_model=RunStatusOut, responses=wes_errors())
async def run_status(context: TheDesk, who: Viewer, run: str) -> Response:
    """The state of a run."""
    _, known = await _run(context, who, run)
    return json_answer({"run_id": run, "state": known.status.state.value})


@router.post("/runs/{run}/cancel", response_model=RunIdOut, responses=wes_errors(409))
async def cancel_run(context: TheDesk, who: Submitter, run: str) -> Response:
    """Cancel a run: its jobs are cancelled, and completed work is undone where its flow defines a compensation. An ended run stays as it is."""
    _, known = await _run(context, who, run)
    if known.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {known.owner}; only the owner or an operator may do this")
    if known.status.ended is None:
        await context.note(who, "run.force-fail", run, owner=known.owner, why="cancelled through WES")
        await runs_of(context).note_cancel(who.tenant, run, who.subject)
        verb = verb_of(context, who, FlowVerbIn(verb=VerbKind.FORCE_FAIL, id=f"cancel:{run}", reason="cancelled"))
        with suppress(NotFound):
            await engine_of(context).send_verb(run, verb)
    return json_answer({"run_id": run})


@router.get("/runs/{run}/tasks", response_model=TasksOut, responses=wes_errors())
async def list_tasks(
    context: TheDesk, who: Viewer, run: str, page_size: Size = PAGE, page_token: Token = ""
) -> Response:
    """The jobs of a run, the oldest first, then its sub-flows; those that existed when the first page was requested."""
    flow_run, _ = await _run(context, who, run)
    limit = min(page_size, MAX_PAGE)
    snapshot, cursor, done = _task_position(page_token) or (context.services.components.clock.now(), "", -1)
    shown: list[dict[str, Any]] = []
    if done < 0:
        query = JobQuery(tenant=who.tenant, anyof={"run": [run]}, at_most={"created": snapshot})
        page = await context.services.components.store.search(query, sort="created", limit=limit, cursor=cursor or None)
        shown = await _tasks(context, run, [job.document for job in page.jobs])
        if page.cursor is not None:
            return json_answer({"task_logs": shown, "next_page_token": _token([snapshot, page.cursor, -1])})
        done = 0
    subs = await runs_of(context).sub_runs(who.tenant, run, flow_run.version) if flow_run is not None else ()
    rest = subs[done : done + limit - len(shown)]
    shown += [sub_run_json(sub_run.id, sub_run.name, run_url=f"{_base(context)}/runs/{sub_run.id}") for sub_run in rest]
    done += len(rest)
    return json_answer(
        {"task_logs": shown, "next_page_token": _token([snapshot, "", done]) if done < len(subs) else ""}
    )


async def _tasks(context: RequestContext, run: str, documents: list[JobDocument]) -> list[dict[str, Any]]:
    specifications = await context.specifications([document.specification for document in documents])
    tes = f"{context.services.components.settings.public_url}/ga4gh/tes/v1"
    out = []
    for document in documents:
        known = specifications.get(document.specification)
        out.append(
            task_json(document, known.command if known else (), run_url=f"{_base(context)}/runs/{run}", tes_url=tes)
        )
    return out


@router.get("/runs/{run}/tasks/{task}", response_model=TaskLogOut, responses=wes_errors())
async def read_task(context: TheDesk, who: Viewer, run: str, task: str) -> Response:
    """One job of a run, or one of its sub-flows."""
    flow_run, _ = await _run(context, who, run)
    with suppress(HttpProblem):
        document = await _job(context, who, run, task)
        return json_answer((await _tasks(context, run, [document]))[0])
    subs = await runs_of(context).sub_runs(who.tenant, run, flow_run.version) if flow_run is not None else ()
    for sub in subs:
        if sub.id == task:
            return json_answer(sub_run_json(sub.id, sub.name, run_url=f"{_base(context)}/runs/{sub.id}"))
    raise HttpProblem(404, f"run {run} has no task {task[:64]}")


async def _job(context: RequestContext, who: Principal, run: str, task: str) -> JobDocument:
    document = (await context.job(task, who)).document
    if document.flow_ref is None or document.flow_ref.run != run:
        raise HttpProblem(404, f"run {run[:64]} has no task {task[:64]}")
    return document


@router.get("/runs/{run}/stdout", response_class=PlainTextResponse, responses=wes_errors())
async def run_stdout(context: TheDesk, who: Viewer, run: str) -> Response:
    """The outputs of a run as JSON: what an engine would print at its end."""
    await _run(context, who, run)
    outputs: Mapping[str, Any] = {}
    with suppress(NotFound):
        state = await engine_of(context).state(run)
        outputs = await context.services.run_outputs.shown(who.tenant, run, state["outputs"])
    return PlainTextResponse(orjson.dumps(outputs, option=orjson.OPT_INDENT_2) + b"\n")


@router.get("/runs/{run}/stderr", response_class=PlainTextResponse, responses=wes_errors())
async def run_stderr(context: TheDesk, who: Viewer, run: str) -> Response:
    """The story of a run in words: the actions of its engine and of the exception service."""
    flow_run, known = await _run(context, who, run)
    events: Sequence[RunHistoryEvent] = ()
    if flow_run is not None:
        events = await context.services.timeline.story(run, tenant=who.tenant, started=known.status.started, ours=True)
    lines = [story_public(*event) for event in events]
    return PlainTextResponse("".join(f"{line['at']} {line['task']} {line['words']}\n" for line in lines))


@router.get("/runs/{run}/tasks/{task}/stdout", response_class=PlainTextResponse, responses=wes_errors())
async def task_stdout(context: TheDesk, who: Viewer, run: str, task: str) -> Response:
    """The end of a job's output; empty until its first attempt has ended."""
    return await _log(context, who, run, task)


@router.get("/runs/{run}/tasks/{task}/stderr", response_class=PlainTextResponse, responses=wes_errors())
async def task_stderr(context: TheDesk, who: Viewer, run: str, task: str) -> Response:
    """The same: a job has one log for both streams."""
    return await _log(context, who, run, task)


async def _log(context: RequestContext, who: Principal, run: str, task: str) -> Response:
    document = await _job(context, who, run, task)
    text = ""
    with suppress(HttpProblem):
        text = await stored_log(context, document, None)
    return PlainTextResponse(text)


def _token(parts: list[object]) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode()


def _parts(token: str) -> list[object]:
    try:
        parts = orjson.loads(base64.b64decode(token.encode(), altchars=b"-_", validate=True))
    except ValueError as error:
        raise HttpProblem(400, "invalid page token") from error
    if not isinstance(parts, list) or len(parts) != 3:
        raise HttpProblem(400, "invalid page token")
    return parts


def _position(token: str) -> RunCursor | None:
    if not token:
        return None
    at, name, snapshot = _parts(token)
    if not _number(at) or not isinstance(name, str) or not _number(snapshot):
        raise HttpProblem(400, "invalid page token")
    return RunCursor(int(str(at)), name, int(str(snapshot)))


def _task_position(token: str) -> tuple[int, str, int] | None:
    """The time of the first page, the position in the jobs, and how many sub-flows were shown; -1: there are more jobs."""
    if not token:
        return None
    snapshot, cursor, done = _parts(token)
    if not _number(snapshot) or not isinstance(cursor, str) or not (_number(done) or done == -1):
        raise HttpProblem(400, "invalid page token")
    return int(str(snapshot)), cursor, int(str(done))


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
