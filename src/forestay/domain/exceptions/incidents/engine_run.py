"""The runs of other engines as the exception service knows them: the events that an engine reports, folded into the state of each run.

An engine reports events and knows nothing of exceptions. One table here maps events to exception types; the rules decide whether there is an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE

FORMAT = 1
MAX_INSTANCES = 1_000
"""The most tasks of a run whose status is kept; beyond it, completed ones are dropped first."""
MAX_DATA = 200
"""Names of a run's data."""
MAX_LEDGER = 200
"""Entries of the ledger of a run's retries."""
_SPACE = UUID("7d7e6c1f-52c4-5b1a-8f0e-3a6a1c9b40d2")


class EventKind(StrEnum):
    """What an engine reports; the value is its name in the interface."""

    RUN_STARTED = "run-started"
    RUN_COMPLETED = "run-completed"
    """Everything in it is done; rules may answer it before the engine reports completion to others."""
    RUN_FAILED = "run-failed"
    RUN_REMOVED = "run-removed"
    RUN_TRIGGERED = "run-triggered"
    """A person or an external system raised an exception for the run."""
    TASK_ENABLED = "task-enabled"
    """It is about to start."""
    TASK_STARTED = "task-started"
    TASK_COMPLETED = "task-completed"
    TASK_ABORTED = "task-aborted"
    """It failed; the event carries evidence."""
    TASK_FAILED = "task-failed"
    """The engine gave up on it."""
    TASK_REMOVED = "task-removed"
    TASK_TIMED_OUT = "task-timed-out"
    TASK_UNPLACED = "task-unplaced"
    """Nothing can run it: no orchestrator, no host, no space."""
    TASK_VIOLATED = "task-violated"
    """A constraint on its execution is violated."""
    TASK_TRIGGERED = "task-triggered"

    @property
    def of_instance(self) -> bool:
        return self.value.startswith("task-")


OCCASIONS: Mapping[EventKind, ExceptionType] = {
    EventKind.RUN_STARTED: ExceptionType.RUN_PRE,
    EventKind.RUN_COMPLETED: ExceptionType.RUN_POST,
    EventKind.RUN_TRIGGERED: ExceptionType.RUN_EXTERNAL,
    EventKind.TASK_ENABLED: ExceptionType.TASK_PRE,
    EventKind.TASK_COMPLETED: ExceptionType.TASK_POST,
    EventKind.TASK_ABORTED: ExceptionType.ABORT,
    EventKind.TASK_TIMED_OUT: ExceptionType.TIMEOUT,
    EventKind.TASK_UNPLACED: ExceptionType.RESOURCE_UNAVAILABLE,
    EventKind.TASK_VIOLATED: ExceptionType.CONSTRAINT_VIOLATION,
    EventKind.TASK_TRIGGERED: ExceptionType.TASK_EXTERNAL,
}
"""The events that rules may answer; all others are only recorded."""

_RUN_STATES = {
    EventKind.RUN_STARTED: "running",
    EventKind.RUN_COMPLETED: "completed",
    EventKind.RUN_FAILED: "failed",
    EventKind.RUN_REMOVED: "removed",
}
_INSTANCE_STATES = {
    EventKind.TASK_ENABLED: "enabled",
    EventKind.TASK_STARTED: "running",
    EventKind.TASK_COMPLETED: "completed",
    EventKind.TASK_ABORTED: "faulted",
    EventKind.TASK_FAILED: "failed",
    EventKind.TASK_REMOVED: "cancelled",
}
ENDED = frozenset({"completed", "failed", "removed"})
"""States of runs that have ended."""


class UnansweredAction(StrEnum):
    """What the engine wants for an aborted task that no rule answers."""

    GO_ON = "go-on"
    """The engine continues as it would without an exception service; the incident is kept."""
    HOLD = "hold"
    """It waits for a person, or for a new rule."""


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event. Times are milliseconds since 1970."""

    id: str
    """The reporter's own id, the same in every repetition."""
    run: str
    """The engine's own name of the run."""
    kind: EventKind
    at: int
    """When it happened, by the reporter's clock."""
    instance: str = ""
    attempt: int = 0
    flow: str = ""
    """The name of the flow that the run is an instance of."""
    owner: str = ""
    parent: str = ""
    """The engine's own name of the run that started this one."""
    data: Mapping[str, object] = field(default_factory=dict)
    """Data of the run that are new or have changed."""
    result: object = None
    """The result of the task or the run."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    instances: Mapping[str, str] = field(default_factory=dict)
    """The status of other tasks, where the engine knows more than we do."""
    trigger: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    otherwise: UnansweredAction = UnansweredAction.GO_ON


@dataclass(frozen=True, slots=True)
class EngineRun:
    """The state of a run of another engine."""

    id: str
    """Our id: unique over all engines and tenants."""
    tenant: str
    engine: str
    key: str
    """The engine's own name of it."""
    reporter: str
    """The reporter, which also carries out orders for it."""
    owner: str
    flow: str = ""
    parent: str = ""
    """Our id of the run above."""
    state: str = "running"
    started: int = 0
    ended: int | None = None
    instances: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    results: Mapping[str, object] = field(default_factory=dict)
    ledger: tuple[tuple[str, str, str], ...] = ()
    """Retries that were ordered: the step, the task, the cause."""

    @property
    def version(self) -> str:
        """A substitute for the flow's version, which engines do not report."""
        return f"{self.engine}/{self.flow}"

    def as_plain(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "id": self.id, "tenant": self.tenant, "engine": self.engine, "key": self.key, "reporter": self.reporter,
            "owner": self.owner, "flow": self.flow, "parent": self.parent, "state": self.state, "started": self.started, "ended": self.ended,
            "instances": dict(self.instances), "data": dict(self.data), "results": dict(self.results), "ledger": [list(step) for step in self.ledger],
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EngineRun:
        known = {name: plain[name] for name in cls.__slots__ if name in plain}
        return cls(**known | {"ledger": tuple((str(a), str(b), str(c)) for a, b, c in plain.get("ledger", ()))})


def engine_run_id(tenant: str, engine: str, key: str) -> str:
    """The id of an engine's run, the same whoever reports it."""
    return str(uuid5(_SPACE, "".join(f"{len(part)}:{part}" for part in (tenant, engine, key))))


def engine_of_version(version: str) -> str:
    """The engine of a run whose flow has this version: ours, whose versions are hashes, or another."""
    engine, slash, _ = version.partition("/")
    return engine if slash else OWN_ENGINE


def begun_run(event: EngineEvent, *, tenant: str, engine: str, reporter: str) -> EngineRun:
    """The state of a run before its first event."""
    return EngineRun(
        id=engine_run_id(tenant, engine, event.run),
        tenant=tenant,
        engine=engine,
        key=event.run,
        reporter=reporter,
        owner=event.owner or reporter,
        flow=event.flow,
        parent=engine_run_id(tenant, engine, event.parent) if event.parent else "",
        started=event.at,
    )


def taken(run: EngineRun, event: EngineEvent) -> EngineRun:
    """The run after an event. A repeated event changes nothing; a late one does not reopen what has ended."""
    instances = dict(run.instances) | dict(event.instances)
    results = dict(run.results)
    state, ended = run.state, run.ended
    if event.kind.of_instance:
        instances[event.instance] = _INSTANCE_STATES.get(event.kind, instances.get(event.instance, "running"))
        if event.kind is EventKind.TASK_COMPLETED and event.result is not None:
            results[event.instance] = event.result
    elif state not in ENDED:
        state = _RUN_STATES.get(event.kind, state)
        ended = event.at if state in ENDED else None
    return replace(
        run,
        flow=run.flow or event.flow,
        state=state,
        ended=ended,
        instances=_few(instances),
        data=dict(list((dict(run.data) | dict(event.data)).items())[-MAX_DATA:]),
        results=dict(list(results.items())[-MAX_DATA:]),
    )


def retried(run: EngineRun, step: str, instance: str, cause: str) -> EngineRun:
    """The run after a step has ordered a retry of a task; counted once, however often it is reported."""
    if any(other_step[0] == step for other_step in run.ledger):
        return run
    return replace(run, ledger=(*run.ledger, (step, instance, cause))[-MAX_LEDGER:])


def _few(instances: dict[str, str]) -> dict[str, str]:
    if len(instances) <= MAX_INSTANCES:
        return instances
    spare = len(instances) - MAX_INSTANCES
    gone = [name for name, state in instances.items() if state in ("completed", "cancelled")][:spare]
    for name in gone:
        del instances[name]
    return dict(list(instances.items())[-MAX_INSTANCES:])
