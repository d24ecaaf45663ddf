"""Routes for cases: started, read, told of and steered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Response
from pydantic import Field, JsonValue

from forestay.apps.server.flows.flow_routes import FlowName, FlowVerbIn, Version, engine_of, verb_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.approvals import WAITS, alone, ask, verb_act
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, Viewer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64, Model
from forestay.apps.server.jobs.job_routes import json_answer
from forestay.domain.exceptions.incidents.engine_case import engine_of_version
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.domain.flows.bpel_flow import message_from_plain
from forestay.formats.flows.case_history import history_event_public
from forestay.formats.flows.case_public import case_public, state_public
from forestay.formats.flows.case_story import story_public
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.flows.flow_engine import CaseQuery, CaseSummary, RunHistoryEvent
from forestay.ports.operations.identity import Principal, Role
from forestay.services.exceptions.engines.engine_commands import Unanswered
from forestay.services.flows.run_starter import RunStarter

router = Router(prefix="/v1", tags=["cases"])
CaseState = Literal[
    "running", "suspended", "stopping", "compensating", "finished", "completed", "forced_complete", "failed", "removed", "undone",
    "terminated", "broken",
]  # fmt: skip


class CaseIn(Model):
    flow: Version | FlowName
    """The version of a stored flow, or the name of a Python flow."""
    params: dict[Annotated[str, Field(max_length=200)], JsonValue] = Field(default_factory=dict, max_length=1000)


class CaseMessageIn(Model):
    partner: Annotated[str, Field(min_length=1, max_length=200)]
    """The partner link."""
    operation: Annotated[str, Field(min_length=1, max_length=200)]
    message: dict[Annotated[str, Field(max_length=200)], Annotated[str, Field(max_length=16_384)] | list[JsonValue]] = (
        Field(default_factory=dict, max_length=20)
    )
    """The parts: each a text, or an element in its plain form."""


class CaseMessageOut(Out):
    sent: bool


class StartedOut(Out):
    id: str
    created: bool


class CaseOut(Out):
    id: str
    owner: str
    name: str
    version: str
    state: CaseState
    started: Time
    ended: Time | None
    above: str | None
    """The case whose sub-flow it is, as far as its engine knows."""


class CasesOut(Out):
    cases: list[CaseOut]
    cursor: str | None


class ItemOut(Out):
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
    """Of a Python flow: the items that had ended when this one began."""


class CaseWholeOut(CaseOut):
    params: dict[str, Any]
    phase: str
    outcome: str | None
    reason: str
    outputs: dict[str, Any]
    holders: list[str]
    flow_holders: list[str]
    """Who holds all cases of the flow."""
    items: list[ItemOut]
    compensations: int


class RunHistoryEventOut(Out):
    at: Time
    kind: str
    item: str
    words: str


class StoryLineOut(RunHistoryEventOut):
    incident: str
    """The incident that it belongs to; empty: none."""


class CaseStoryOut(Out):
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


async def case_of_tenant(context: RequestContext, case: str, who: Principal) -> CaseSummary:
    """A case of the caller's tenant; any other does not exist."""
    found: CaseSummary | None = None
    if 0 < len(case) <= 64:
        with suppress(NotFound):
            found = await context.services.engines.describe(case)
    if found is None:
        with suppress(NotFound):
            found = await engine_of(context).describe(case) if 0 < len(case) <= 64 else None
    if found is None or found.tenant != who.tenant:
        raise HttpProblem(404, f"there is no run {case[:64]} in tenant {who.tenant}")
    return found


def home_of(context: RequestContext, found: CaseSummary) -> ExceptionEngine:
    """Where a case lives: in our engine, or in another."""
    return engine_of(context) if is_ours(found) else context.services.engines


def is_ours(found: CaseSummary) -> bool:
    return engine_of_version(found.version) == OWN_ENGINE


def _shown(found: CaseSummary) -> dict[str, object]:
    known = found._asdict()
    del known["tenant"]
    return case_public(**known)


@router.post("/cases", status_code=201, response_model=StartedOut, responses=errors(404, 409, body=True))
async def start_case(
    context: TheDesk,
    who: Submitter,
    body: CaseIn,
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    traceparent: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Start a case of a stored flow, or of a Python flow by its name; it is pinned to the flow as it is now."""
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
    return json_answer({"id": started.case, "created": started.created}, 201)


@router.get("/cases", response_model=CasesOut, responses=errors(400))
async def find_cases(
    context: TheDesk,
    who: Viewer,
    name: Annotated[str, Query(max_length=200)] = "",
    version: Annotated[str, Query(max_length=64)] = "",
    state: Annotated[str, Query(max_length=40)] = "",
    owner: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """Find cases by flow, state or owner, the newest first."""
    query = CaseQuery(who.tenant, name, version, state, owner)
    page = await engine_of(context).find(query, limit=limit, cursor=cursor)
    return json_answer({"cases": [_shown(one) for one in page.cases], "cursor": page.cursor})


@router.get("/cases/{case}", response_model=CaseWholeOut, responses=errors(404))
async def read_case(context: TheDesk, who: Viewer, case: str) -> Response:
    """One case with its items."""
    found = await case_of_tenant(context, case, who)
    gate = await context.services.gates.gate(who.tenant, found.version)
    state = state_public(await home_of(context, found).state(case))
    outputs = state["outputs"]
    if is_ours(found):
        outputs = await context.services.case_outputs.shown(who.tenant, case, outputs)
    return json_answer(_shown(found) | state | {"outputs": outputs, "flow_holders": list(gate.holders)})


@router.get("/cases/{case}/history", response_model=HistoryOut, responses=errors(400, 404))
async def read_history(
    context: TheDesk,
    who: Viewer,
    case: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """What happened to a case, in words, the oldest first."""
    found = await case_of_tenant(context, case, who)
    if not is_ours(found):
        events = await context.services.timeline.events(case)
        page, cursor = _page(events, limit, cursor)
        shown = [story_public(*one) for one in page]
        return json_answer({"history": [_without_incident(one) for one in shown], "cursor": cursor})
    told = await engine_of(context).history(case, limit=limit, cursor=cursor)
    return json_answer({"history": [history_event_public(*one) for one in told.happenings], "cursor": told.cursor})


@router.get("/cases/{case}/story", response_model=CaseStoryOut, responses=errors(400, 404))
async def read_story(
    context: TheDesk,
    who: Viewer,
    case: str,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    cursor: Annotated[str | None, Query(max_length=40)] = None,
) -> Response:
    """Everything that is known of a case, of any engine: its engine's log joined with incidents, decisions, steps, orders and what people did, the oldest first."""
    found = await case_of_tenant(context, case, who)
    told = await context.services.timeline.story(case, tenant=who.tenant, started=found.started, ours=is_ours(found))
    page, cursor = _page(told, limit, cursor)
    return json_answer({"story": [story_public(*one) for one in page], "cursor": cursor})


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


@router.post("/cases/{case}/messages", response_model=CaseMessageOut, responses=errors(404, 409, body=True))
async def send_message(context: TheDesk, who: Submitter, case: str, body: CaseMessageIn) -> Response:
    """Give the process of a case a message: one that it waits for, or the answer of a person whom it has asked."""
    found = await case_of_tenant(context, case, who)
    if found.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {found.owner}; only the owner or an operator may do this")
    if not is_ours(found) or found.ended is not None:
        raise HttpProblem(409, "the run has ended, or it is not a BPEL process")
    try:
        message_from_plain(body.message)
    except ValueError as error:
        raise HttpProblem(422, f"message: {error}") from error
    await context.note(who, "case.message", case, partner=body.partner, operation=body.operation)
    await engine_of(context).send_message(case, body.model_dump())
    return json_answer({"sent": True})


@router.post("/cases/{case}/verbs", response_model=AnsweredOut, responses=errors(404, 409, body=True) | WAITS)
async def send_verb(context: TheDesk, who: Submitter, case: str, body: VerbIn) -> Response:
    """Steer a case or one of its items."""
    found = await case_of_tenant(context, case, who)
    if found.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the run belongs to {found.owner}; only the owner or an operator may do this")
    if body.holder not in (None, who.subject) and not who.may(Role.OPERATOR):
        raise HttpProblem(403, "only an operator may suspend or continue for somebody else")
    verb = replace(verb_of(context, who, body), round=body.round, ancestors=body.ancestors)
    target = "item" if verb.item else "ancestors" if verb.ancestors else "case"
    if not alone(context, who, verb.kind.value, target, owner=found.owner):
        words = f"{verb.kind} {f'item {verb.item} of ' if verb.item else ''}case {case}"
        act = verb_act("case.verb", verb)
        return await ask(context, who, verb.kind.value, case, owner=found.owner, why=verb.reason, act=act, words=words)
    what = {"item": verb.item, "verb": verb.id} | ({"ancestors": True} if verb.ancestors else {})
    await context.note(who, f"case.{verb.kind}", case, owner=found.owner, why=verb.reason, **what)
    try:
        answer = await home_of(context, found).send_verb(case, verb)
    except Unanswered:
        return json_answer({"id": verb.id, "accepted": True, "detail": "sent; the engine has not replied yet"})
    except NotFound:
        raise HttpProblem(409, "the run has ended") from None
    if not answer.accepted:
        raise HttpProblem(409, answer.detail)
    return json_answer({"id": verb.id, "accepted": True, "detail": answer.detail})
