"""Interface X: other engines report the events of their runs and carry out commands. They need to know nothing about exceptions."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query, Request, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import EngineCaller, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64, Model, PlainValue
from forestay.domain.exceptions.incidents.engine_run import EngineEvent, EngineRun, EventKind, UnansweredAction
from forestay.domain.exceptions.incidents.incident import CLOSED
from forestay.domain.playbooks.engine_order import EngineOrder, OrderOutcome, OrderVerb
from forestay.formats.jobs.job_public import time_text
from forestay.ports.operations.identity import Principal, Role
from forestay.services.exceptions.engines.engine_commands import CommandReply, EngineReporter
from forestay.services.exceptions.engines.engine_event_intake import ReportedElsewhere

router = Router(prefix="/v1/engines", tags=["engines"])
MAX_EVENTS = 100
MAX_EVENT = 131_072
"""Bytes of one event as JSON."""
LONGEST_WAIT = 30.0
MOST_WAITING = 2_000
"""The most requests that may wait for orders at one server."""
EngineName = Annotated[
    str, Path(pattern=r"^[a-z][a-z0-9-]{0,39}$", description="The engine's name, chosen by its operator.")
]
Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""The engine's own names of runs and tasks."""
Word = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Data = dict[Annotated[str, Field(min_length=1, max_length=100)], PlainValue]


class EventIn(Model):
    id: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:@+/-]+$")]
    """The reporter's own id: the same in every repetition, and of no other event of the run."""
    run: Key
    kind: EventKind
    task: Word = ""
    at: int | None = Field(default=None, ge=0, le=INT64)
    """Milliseconds since 1970; now, if it is left out."""
    attempt: int = Field(default=0, ge=0, le=1_000_000)
    flow: Word = ""
    """The name of the flow that the run is an instance of: rules may be written for it."""
    owner: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._@+-]*$")] = ""
    """The owner of the run; only a token of role `engine` may name another than itself."""
    parent: Annotated[str, Field(max_length=200)] = ""
    data: Data = Field(default_factory=dict, max_length=200)
    result: PlainValue = None
    evidence: Data = Field(default_factory=dict, max_length=100)
    """As `forestay classify` reads it: exit_code, signal, log_tail, scheduler_state and so on."""
    tasks: dict[Key, Annotated[str, Field(max_length=40)]] = Field(default_factory=dict, max_length=1000)
    trigger: Word = ""
    labels: dict[Annotated[str, Field(max_length=100)], Annotated[str, Field(max_length=200)]] = Field(
        default_factory=dict, max_length=50
    )
    otherwise: UnansweredAction = UnansweredAction.GO_ON
    """What to do about an aborted task if no rule answers: continue without us, or wait for a person."""


class EventsIn(Model):
    events: list[EventIn] = Field(min_length=1, max_length=MAX_EVENTS)


class EventAnswerOut(Out):
    event: str
    run: str
    """Our id of the run."""
    answer: Literal["go-on", "wait"]
    incident: str | None
    words: str


class EventAnswersOut(Out):
    answers: list[EventAnswerOut]


class OrderOut(Out):
    n: int
    """Its number; request those after it the next time."""
    id: str
    run: str
    key: str
    """The engine's own name of the run."""
    verb: OrderVerb
    task: str
    holder: str
    wait: int
    needs: dict[str, dict[str, float]]
    data: dict[str, Any]
    by: str
    reason: str
    incident: str
    at: Time


class ToldIncidentOut(Out):
    state: str
    closed: bool
    """No further action follows."""
    words: str


class OrdersOut(Out):
    orders: list[OrderOut]
    incidents: dict[str, ToldIncidentOut]
    """The requested incidents."""


class OutcomeIn(Model):
    outcome: OrderOutcome
    detail: Annotated[str, Field(max_length=500)] = ""


class OutcomeOut(Out):
    outcome: OrderOutcome
    detail: str


class EngineRunOut(Out):
    id: str
    key: str
    flow: str
    owner: str
    state: str
    started: Time
    tasks: dict[str, str]


class EngineRunsOut(Out):
    runs: list[EngineRunOut]


def _event(body: EventIn, who: Principal, now: int) -> EngineEvent:
    if body.kind.of_instance != bool(body.task):
        raise HttpProblem(
            422, f"{body.kind} is about {'a task: name it' if body.kind.of_instance else 'the run, not a task'}"
        )
    if body.owner not in ("", who.subject) and Role.ENGINE not in who.roles:
        raise HttpProblem(403, "only a token of the role engine may report the runs of others")
    if len(orjson.dumps(body.model_dump(mode="json"))) > MAX_EVENT:
        raise HttpProblem(413, f"an event may have at most {MAX_EVENT} bytes")
    known = body.model_dump(exclude={"task", "tasks"})
    known |= {"instance": body.task, "instances": dict(body.tasks), "at": now if body.at is None else body.at}
    return EngineEvent(**known)


@router.post("/{engine}/events", response_model=EventAnswersOut, responses=errors(404, 409, body=True))
async def report_events(context: TheDesk, who: EngineCaller, engine: EngineName, body: EventsIn) -> Response:
    """Report what happened to runs and tasks; each event is answered at once by `go-on` or `wait`. A repetition gets the first answer, or the present state."""
    now = context.services.components.clock.now()
    events = [_event(event, who, now) for event in body.events]
    try:
        answers = await context.services.events.take(EngineReporter(who.tenant, engine, who.subject), events)
    except ReportedElsewhere as error:
        raise HttpProblem(409, str(error)) from error
    shown = [
        engine_event_answer._asdict() | {"answer": engine_event_answer.answer.value} for engine_event_answer in answers
    ]
    return json_answer({"answers": shown})


@router.get("/{engine}/orders", response_model=OrdersOut, responses=errors(429))
async def read_orders(
    context: TheDesk,
    who: EngineCaller,
    request: Request,
    engine: EngineName,
    after: Annotated[int, Query(ge=0, le=INT64, description="Commands with higher numbers only.")] = 0,
    run: Annotated[str, Query(max_length=64, description="Commands for this run only, by its Forestay id.")] = "",
    incident: Annotated[list[str] | None, Query(max_length=20, description="Also return the status of these.")] = None,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a command.")] = 0,
) -> Response:
    """Unanswered orders, the oldest first. With `wait` the response comes when there is one, or when one of the incidents is closed."""
    engines = context.services.engines
    reporter = EngineReporter(who.tenant, engine, who.subject)
    names = [name for name in incident or () if len(name) <= 64]
    deadline = time.monotonic() + wait
    if wait and context.waiting_engines >= MOST_WAITING:
        raise HttpProblem(429, "too many requests wait for commands here; try again, or use another server")
    context.waiting_engines += 1
    try:
        with context.callers.waiting(request.scope):
            while True:
                orders = await engines.orders(reporter, after=after, run=run)
                incidents = await _told(context, who, names)
                closed = any(other_incident["closed"] for other_incident in incidents.values())
                left = deadline - time.monotonic()
                if orders or closed or left <= 0 or context.stopping.is_set() or await request.is_disconnected():
                    shown = [_order(n, order) for n, order in orders]
                    return json_answer({"orders": shown, "incidents": incidents})
                await engines.wait(left)
    finally:
        context.waiting_engines -= 1


@router.post("/{engine}/orders/{order}", response_model=OutcomeOut, responses=errors(404, body=True))
async def answer_order(
    context: TheDesk, who: EngineCaller, engine: EngineName, order: str, body: OutcomeIn
) -> Response:
    """Report the outcome of an order. The first answer is kept, and returned for any later one."""
    if len(order) > 64:
        raise HttpProblem(404, "there is no such command")
    reporter = EngineReporter(who.tenant, engine, who.subject)
    stands = await context.services.components.engine_replies.acknowledge(
        reporter, order, CommandReply(body.outcome, body.detail)
    )
    return json_answer({"outcome": stands.outcome.value, "detail": stands.detail})


@router.get("/{engine}/runs", response_model=EngineRunsOut, responses=errors())
async def engine_runs(context: TheDesk, who: Viewer, engine: EngineName) -> Response:
    """The runs of an engine that have not ended."""
    runs = await context.services.engines.open_runs(who.tenant, engine)
    return json_answer({"runs": [_run(run) for run in runs]})


async def _told(context: RequestContext, who: Principal, names: list[str]) -> dict[str, dict[str, Any]]:
    if not names:
        return {}
    statuses = await context.services.components.incidents.get_statuses(names)
    return {
        name: {
            "state": stored_incident_status.status.state.value,
            "closed": stored_incident_status.status.state in CLOSED,
            "words": stored_incident_status.status.note,
        }
        for name, stored_incident_status in statuses.items()
        if stored_incident_status.status.tenant == who.tenant
    }


def _order(n: int, order: EngineOrder) -> dict[str, Any]:
    return {
        "n": n, "id": order.id, "run": order.run, "key": order.key, "verb": order.verb.value, "task": order.instance, "holder": order.holder,
        "wait": order.wait, "needs": {name: dict(need) for name, need in order.needs.items()}, "data": dict(order.data), "by": order.by,
        "reason": order.reason, "incident": order.incident, "at": time_text(order.at),
    }  # fmt: skip


def _run(run: EngineRun) -> dict[str, Any]:
    known = {"id": run.id, "key": run.key, "flow": run.flow, "owner": run.owner, "state": run.state}
    return known | {"started": time_text(run.started), "tasks": dict(run.instances)}
