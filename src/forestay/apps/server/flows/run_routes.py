"""Routes for runs: start, read, report to, and steer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import FlowName, FlowVerbIn, Version, engine_of, verb_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.approvals import WAITS, alone, ask, verb_act
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64, Model, PlainValue
from forestay.domain.exceptions.incidents.engine_run import engine_of_version
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.domain.flows.execution.run_names import run_of
from forestay.formats.flows.run_history import history_event_public
from forestay.formats.flows.run_public import run_public, state_public
from forestay.formats.flows.run_story import story_public
from forestay.formats.flows.run_wait_public import waits_public
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.flows.flow_engine import RunHistoryEvent, RunQuery, RunSummary
from forestay.ports.operations.identity import Principal, Role
from forestay.services.exceptions.engines.engine_commands import Unanswered
from forestay.services.flows.placed_runs import placings
from forestay.services.flows.run_resumer import RunResumer
from forestay.services.flows.run_starter import RunStarter

router = Router(prefix="/v1", tags=["runs"])
RunState = Literal[
    "running", "asking", "suspended", "held", "stopping", "compensating", "finished", "completed", "forced_complete", "failed",
    "removed", "undone", "terminated", "broken",
]  # fmt: skip


class RunIn(Model):
    flow: Version | FlowName
    """The version of a stored flow, or the name of a Python flow."""
    params: dict[Annotated[str, Field(max_length=200)], PlainValue] = Field(default_factory=dict, max_length=1000)


class StartedOut(Out):
    id: str
    created: bool


class RunOut(Out):
    id: str
    owner: str
    name: str
    version: str
    state: RunState
    started: Time
    ended: Time | None
    above: str | None
    """The run whose sub-flow it is, as far as its engine knows."""
    schedule: str | None
    """The schedule that started it."""


class RunsOut(Out):
    runs: list[RunOut]
    cursor: str | None


class TaskOut(Out):
    id: str
    task: str
    state: str
    round: int
    count: int
    well: int
    bad: int
    exit_code: int | None
    reason: str
    holders: list[str]
    began: Time | None
    finished: Time | None
    after: list[str]
    """For a Python flow: the tasks that had ended when this one began."""
    domains: dict[str, int]
    """Of a task with a sub-flow that may run in other domains: how many of its runs are in each; the empty name is this domain."""


class RunWaitOut(Out):
    task: str
    """Empty: the whole run."""
    holder: str
    """Who suspended it; empty: nobody, it failed."""
    incident: str
    """The incident that has to be answered, if there is one."""
    words: str
    who: str
    """Who can release it."""
    command: str
    """How, on the command line; empty: there is no command."""


class RunDetailsOut(RunOut):
    params: dict[str, Any]
    phase: str
    outcome: str | None
    reason: str
    outputs: dict[str, Any]
    holders: list[str]
    flow_holders: list[str]
    """Who holds all runs of the flow."""
    tasks: list[TaskOut]
    compensations: int
    waits: list[RunWaitOut]
    """The waits that end only when somebody decides."""


class RunHistoryEventOut(Out):
    at: Time
    kind: str
    task: str
    words: str


class StoryLineOut(RunHistoryEventOut):
    incident: str
    """The incident that it belongs to; empty: none."""


class RunStoryOut(Out):
    story: list[StoryLineOut]
    cursor: str | None


class HistoryOut(Out):
    history: list[RunHistoryEventOut]
    cursor: str | None


class VerbIn(FlowVerbIn):
    round: int | None = Field(default=None, ge=0, le=INT64)
    ancestors: bool = False


class AnsweredOut(Out):
    id: str
    accepted: bool
    detail: str


class ResumeIn(Model):
    task: str = Field(default="", max_length=200)
    """The task to start from; empty: all that failed or never began."""
    params: dict[Annotated[str, Field(max_length=200)], PlainValue] = Field(default_factory=dict, max_length=1000)
    """Parameters that change."""
    reason: str = Field(default="", max_length=1000)
    dry_run: bool = False


class TaskAgainOut(Out):
    task: str
    elements: int | None
    """How many of its elements are run; null if it never began."""
    of: int | None
    external: bool
    """It has external effects, and had begun before."""


class ResumedOut(Out):
    id: str
    resumed: bool
    kept: list[str]
    again: list[TaskAgainOut]


async def run_of_tenant(context: RequestContext, run: str, who: Principal) -> RunSummary:
    """A run of the caller's tenant; runs of others are reported as missing."""
    summary: RunSummary | None = None
    if 0 < len(run) <= 64:
        with suppress(NotFound):
            summary = await context.services.engines.describe(run)
    if summary is None:
        with suppress(NotFound):
            summary = await engine_of(context).describe(run) if 0 < len(run) <= 64 else None
    if summary is None or summary.tenant != who.tenant:
        raise HttpProblem(404, f"there is no run {run[:64]} in tenant {who.tenant}")
    return summary


def home_of(context: RequestContext, summary: RunSummary) -> ExceptionEngine:
    """The engine of a run: ours, or another."""
    return engine_of(context) if is_ours(summary) else context.services.engines


def is_ours(summary: RunSummary) -> bool:
    return engine_of_version(summary.version) == OWN_ENGINE


def _shown(summary: RunSummary) -> dict[str, object]:
    known = summary._asdict()
    del known["tenant"]
    return run_public(**known)


@router.post("/runs", status_code=201, response_model=StartedOut, responses=errors(404, 409, 501, body=True))
async def start_run(
    context: TheDesk,
    who: Submitter,
    body: RunIn,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    traceparent: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Start a run of a stored flow, or of a Python flow by its name; it is pinned to the flow as it is now."""
    parts = context.services.components
    version = body.flow
    if re.fullmatch(r"[0-9a-f]{64}", version) is None:
        python = parts.folder.flows().get(version)
        if python is None:
            raise HttpProblem(404, f"there is no Python flow {version}; GET /v1/flows lists all")
        version = await parts.flows.put_python(python, tenant=who.tenant)
    starting = RunStarter(parts.flows, engine_of(context), parts.ids, parts.checks)
    with parts.traces.within(traceparent or "") if parts.traces is not None else nullcontext():
        started = await starting.start(
            version, dict(body.params), tenant=who.tenant, owner=who.subject, key=idempotency_key or None
        )
    return json_answer({"id": started.run, "created": started.created}, 201)


@router.get("/runs", response_model=RunsOut, responses=errors(400, 501))
async def find_runs(
    context: TheDesk,
    who: Viewer,
    name: Annotated[str, Query(max_length=200)] = "",
    version: Annotated[str, Query(max_length=64)] = "",
    state: Annotated[str, Query(max_length=100, description="One, or several separated by commas.")] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """Find runs by flow, state or owner, the newest first."""
    query = RunQuery(who.tenant, name, version, state, owner)
    page = await engine_of(context).find(query, limit=limit, cursor=cursor)
    return json_answer({"runs": [_shown(run) for run in page.runs], "cursor": page.cursor})


MOST_PLACED = 500
"""The most runs of sub-flows whose domains are shown with a run."""


@router.get("/runs/{run}", response_model=RunDetailsOut, responses=errors(404, 501))
async def read_run(context: TheDesk, who: Viewer, run: str) -> Response:
    """One run with its tasks."""
    summary = await run_of_tenant(context, run, who)
    suspension = await context.services.suspensions.suspension(who.tenant, summary.version)
    plain = await home_of(context, summary).state(run)
    state = state_public(plain)
    works = [f"{task['id']}@{task['round']}" for task in plain["instances"] if task.get("state") == "asking"]
    questions = await context.services.components.questions.of_run(run, works)
    asks = {question.task: (question.id, question.who) for question in questions}
    waits = waits_public(run, summary.owner, plain, suspension.holders, asks)
    domains = await _domains(context, run, state["tasks"]) if is_ours(summary) else {}
    for task in state["tasks"]:
        task["domains"] = domains.get(task["id"], {})
    outputs = state["outputs"]
    if is_ours(summary):
        outputs = await context.services.run_outputs.shown(who.tenant, run, outputs)
    more = {"outputs": outputs, "flow_holders": list(suspension.holders), "waits": waits}
    return json_answer(_shown(summary) | state | more)


async def _domains(context: RequestContext, run: str, tasks: Sequence[dict[str, Any]]) -> dict[str, Counter[str]]:
    """By task, in which domains its sub-flows were placed; nothing is searched in a domain without peers."""
    parts = context.services.components
    if not parts.peers.any_known:
        return {}
    runs = {
        run_of(run, f"{task['id']}@{task['round']}", index): task["id"]
        for task in tasks
        for index in range(min(task["count"], MOST_PLACED))
    }
    domains: dict[str, Counter[str]] = {}
    for placed in (await placings(parts.documents, list(runs)[:MOST_PLACED])).values():
        domains.setdefault(runs[placed.run], Counter())[placed.at] += 1
    return domains


@router.get("/runs/{run}/history", response_model=HistoryOut, responses=errors(400, 404, 501))
async def read_history(
    context: TheDesk,
    who: Viewer,
    run: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """What happened to a run, in words, the oldest first."""
    summary = await run_of_tenant(context, run, who)
    if not is_ours(summary):
        events = await context.services.timeline.events(run, tenant=who.tenant)
        page, cursor = _page(events, limit, cursor)
        shown = [story_public(*event) for event in page]
        return json_answer({"history": [_without_incident(event) for event in shown], "cursor": cursor})
    history_page = await engine_of(context).history(run, limit=limit, cursor=cursor)
    return json_answer(
        {
            "history": [history_event_public(*happening) for happening in history_page.happenings],
            "cursor": history_page.cursor,
        }
    )


@router.get("/runs/{run}/story", response_model=RunStoryOut, responses=errors(400, 404, 501))
async def read_story(
    context: TheDesk,
    who: Viewer,
    run: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(max_length=40)] = None,
) -> Response:
    """The complete story of a run of any engine: its engine's log joined with incidents, decisions, steps, orders and people's actions, the oldest first."""
    summary = await run_of_tenant(context, run, who)
    events = await context.services.timeline.story(
        run, tenant=who.tenant, started=summary.started, ours=is_ours(summary)
    )
    page, cursor = _page(events, limit, cursor)
    return json_answer({"story": [story_public(*event) for event in page], "cursor": cursor})


def _page(
    lines: Sequence[RunHistoryEvent], limit: int, cursor: str | None
) -> tuple[Sequence[RunHistoryEvent], str | None]:
    start = 0
    if cursor is not None:
        if not cursor.isdecimal():
            raise HttpProblem(400, "invalid cursor")
        start = int(cursor)
    end = start + limit
    return lines[start:end], str(end) if end < len(lines) else None


def _without_incident(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "incident"}


@router.post("/runs/{run}/resume", response_model=ResumedOut, responses=errors(404, 409, 501, body=True))
async def resume_run(context: TheDesk, who: Submitter, run: str, body: ResumeIn) -> Response:
    """Resume a run that has ended: it keeps its completed work, and runs again what failed, was cancelled or compensated, and everything after that."""
    summary = await run_of_tenant(context, run, who)
    check_owner(summary, who)
    if not is_ours(summary):
        raise HttpProblem(409, "a run of another engine is resumed there")
    parts = context.services.components
    resumer = RunResumer(parts.flows, engine_of(context))
    planned = await resumer.plan(summary, task=body.task, changes=body.params, at=parts.clock.now())
    if not body.dry_run:
        await context.note(who, "run.resume", run, owner=summary.owner, why=body.reason, task=body.task)
        await resumer.resume(planned)
    again = [task._asdict() for task in planned.resumption.again]
    kept = list(planned.resumption.kept)
    return json_answer({"id": run, "resumed": not body.dry_run, "kept": kept, "again": again})


def check_owner(summary: RunSummary, who: Principal) -> None:
    """Only the owner of a run or an operator may steer it."""
    if summary.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {summary.owner}; only the owner or an operator may do this")


@router.post("/runs/{run}/verbs", response_model=AnsweredOut, responses=errors(404, 409, 501, body=True) | WAITS)
async def send_verb(context: TheDesk, who: Submitter, run: str, body: VerbIn) -> Response:
    """Steer a run or one of its tasks."""
    summary = await run_of_tenant(context, run, who)
    check_owner(summary, who)
    if body.holder not in (None, who.subject) and not who.may(Role.OPERATOR):
        raise HttpProblem(403, "only an operator may suspend or continue for somebody else")
    verb = replace(verb_of(context, who, body), round=body.round, ancestors=body.ancestors)
    target = "task" if verb.instance else "ancestors" if verb.ancestors else "run"
    if not alone(context, who, verb.kind.value, target, owner=summary.owner):
        words = f"{verb.kind} {f'task {verb.instance} of ' if verb.instance else ''}run {run}"
        act = verb_act("run.verb", verb)
        return await ask(context, who, verb.kind.value, run, owner=summary.owner, why=verb.reason, act=act, words=words)
    what = {"task": verb.instance, "verb": verb.id} | ({"ancestors": True} if verb.ancestors else {})
    await context.note(who, f"run.{verb.kind}", run, owner=summary.owner, why=verb.reason, **what)
    try:
        answer = await home_of(context, summary).send_verb(run, verb)
    except Unanswered:
        return json_answer({"id": verb.id, "accepted": True, "detail": "sent; the engine has not replied yet"})
    except NotFound:
        raise HttpProblem(409, f"the run has ended; `forestay runs resume {run[:8]}` releases it") from None
    if not answer.accepted:
        raise HttpProblem(409, answer.detail)
    return json_answer({"id": verb.id, "accepted": True, "detail": answer.detail})
