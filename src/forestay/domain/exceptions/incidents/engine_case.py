"""The cases of other engines, as far as the exception service knows them: what their engine reports, folded to where each stands.

An engine reports events and knows nothing of exceptions. Which occasion for an exception an event is, stands in one table here; whether it is one, the rules say.
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
MAX_ITEMS = 1_000
"""Items of a case whose status is remembered; of more, those that have ended well are forgotten first."""
MAX_DATA = 200
"""Names of a case's data."""
MAX_LEDGER = 200
"""Entries of the ledger of a case's retries."""
_SPACE = UUID("7d7e6c1f-52c4-5b1a-8f0e-3a6a1c9b40d2")


class EventKind(StrEnum):
    """What an engine reports; the value is its name in the interface."""

    CASE_STARTED = "case-started"
    CASE_COMPLETED = "case-completed"
    """Everything in it is done; it may be answered before the engine says so to others."""
    CASE_FAILED = "case-failed"
    CASE_REMOVED = "case-removed"
    CASE_TRIGGERED = "case-triggered"
    """Somebody or something outside raised an exception for the case."""
    ITEM_ENABLED = "item-enabled"
    """It is about to start."""
    ITEM_STARTED = "item-started"
    ITEM_COMPLETED = "item-completed"
    ITEM_ABORTED = "item-aborted"
    """It did not end well; the event carries evidence."""
    ITEM_FAILED = "item-failed"
    """The engine has given it up."""
    ITEM_REMOVED = "item-removed"
    ITEM_TIMED_OUT = "item-timed-out"
    ITEM_UNPLACED = "item-unplaced"
    """Nothing can take it: no worker, no host, no space."""
    ITEM_VIOLATED = "item-violated"
    """Something that must hold while it executes does not."""
    ITEM_TRIGGERED = "item-triggered"

    @property
    def of_item(self) -> bool:
        return self.value.startswith("item-")


OCCASIONS: Mapping[EventKind, ExceptionType] = {
    EventKind.CASE_STARTED: ExceptionType.CASE_PRE,
    EventKind.CASE_COMPLETED: ExceptionType.CASE_POST,
    EventKind.CASE_TRIGGERED: ExceptionType.CASE_EXTERNAL,
    EventKind.ITEM_ENABLED: ExceptionType.ITEM_PRE,
    EventKind.ITEM_COMPLETED: ExceptionType.ITEM_POST,
    EventKind.ITEM_ABORTED: ExceptionType.ABORT,
    EventKind.ITEM_TIMED_OUT: ExceptionType.TIMEOUT,
    EventKind.ITEM_UNPLACED: ExceptionType.RESOURCE_UNAVAILABLE,
    EventKind.ITEM_VIOLATED: ExceptionType.CONSTRAINT_VIOLATION,
    EventKind.ITEM_TRIGGERED: ExceptionType.ITEM_EXTERNAL,
}
"""The events that rules may answer; all others are only remembered."""

_CASE_STATES = {
    EventKind.CASE_STARTED: "running",
    EventKind.CASE_COMPLETED: "completed",
    EventKind.CASE_FAILED: "failed",
    EventKind.CASE_REMOVED: "removed",
}
_ITEM_STATES = {
    EventKind.ITEM_ENABLED: "enabled",
    EventKind.ITEM_STARTED: "running",
    EventKind.ITEM_COMPLETED: "completed",
    EventKind.ITEM_ABORTED: "faulted",
    EventKind.ITEM_FAILED: "failed",
    EventKind.ITEM_REMOVED: "cancelled",
}
ENDED = frozenset({"completed", "failed", "removed"})
"""States of cases that have ended."""


class UnansweredAction(StrEnum):
    """What the engine wants done about an item that aborted and that no rule answers."""

    GO_ON = "go-on"
    """It deals with it as it would without an exception service; the incident is kept."""
    HOLD = "hold"
    """It waits for a person, or for a rule that is added."""


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One event. Times are milliseconds since 1970."""

    id: str
    """The reporter's own, the same in every repeat."""
    case: str
    """The engine's own name of the case."""
    kind: EventKind
    at: int
    """When it happened, by the reporter's clock."""
    item: str = ""
    attempt: int = 0
    flow: str = ""
    """The name of what the case is an instance of."""
    owner: str = ""
    parent: str = ""
    """The engine's own name of the case that started this one."""
    data: Mapping[str, object] = field(default_factory=dict)
    """Data of the case that are new or have changed."""
    result: object = None
    """What the item or the case came to."""
    evidence: Mapping[str, object] = field(default_factory=dict)
    items: Mapping[str, str] = field(default_factory=dict)
    """The status of other items, where the engine knows it better than we do."""
    trigger: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    otherwise: UnansweredAction = UnansweredAction.GO_ON


@dataclass(frozen=True, slots=True)
class EngineCase:
    """Where a case of another engine stands."""

    id: str
    """Ours: no two cases of any engines and tenants share it."""
    tenant: str
    engine: str
    key: str
    """The engine's own name of it."""
    reporter: str
    """Who reports it, and who obeys orders for it."""
    owner: str
    flow: str = ""
    parent: str = ""
    """Our id of the case above."""
    state: str = "running"
    started: int = 0
    ended: int | None = None
    items: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)
    results: Mapping[str, object] = field(default_factory=dict)
    ledger: tuple[tuple[str, str, str], ...] = ()
    """Retries that were ordered: the step, the item, the cause."""

    @property
    def version(self) -> str:
        """What stands for the flow's version: engines do not tell theirs."""
        return f"{self.engine}/{self.flow}"

    def as_plain(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "id": self.id, "tenant": self.tenant, "engine": self.engine, "key": self.key, "reporter": self.reporter,
            "owner": self.owner, "flow": self.flow, "parent": self.parent, "state": self.state, "started": self.started, "ended": self.ended,
            "items": dict(self.items), "data": dict(self.data), "results": dict(self.results), "ledger": [list(one) for one in self.ledger],
        }  # fmt: skip

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EngineCase:
        known = {name: plain[name] for name in cls.__slots__ if name in plain}
        return cls(**known | {"ledger": tuple((str(a), str(b), str(c)) for a, b, c in plain.get("ledger", ()))})


def engine_case_id(tenant: str, engine: str, key: str) -> str:
    """The same case of the same engine has one id here, whoever reports it."""
    return str(uuid5(_SPACE, "".join(f"{len(part)}:{part}" for part in (tenant, engine, key))))


def engine_of_version(version: str) -> str:
    """The engine of a case whose flow has this version: ours, whose versions are hashes, or another."""
    engine, slash, _ = version.partition("/")
    return engine if slash else OWN_ENGINE


def begun_case(event: EngineEvent, *, tenant: str, engine: str, reporter: str) -> EngineCase:
    """A case of which nothing was heard before this event."""
    return EngineCase(
        id=engine_case_id(tenant, engine, event.case),
        tenant=tenant,
        engine=engine,
        key=event.case,
        reporter=reporter,
        owner=event.owner or reporter,
        flow=event.flow,
        parent=engine_case_id(tenant, engine, event.parent) if event.parent else "",
        started=event.at,
    )


def taken(case: EngineCase, event: EngineEvent) -> EngineCase:
    """The case after an event. The same event again changes nothing more; a late one does not wake what has ended."""
    items = dict(case.items) | dict(event.items)
    results = dict(case.results)
    state, ended = case.state, case.ended
    if event.kind.of_item:
        items[event.item] = _ITEM_STATES.get(event.kind, items.get(event.item, "running"))
        if event.kind is EventKind.ITEM_COMPLETED and event.result is not None:
            results[event.item] = event.result
    elif state not in ENDED:
        state = _CASE_STATES.get(event.kind, state)
        ended = event.at if state in ENDED else None
    return replace(
        case,
        flow=case.flow or event.flow,
        state=state,
        ended=ended,
        items=_few(items),
        data=dict(list((dict(case.data) | dict(event.data)).items())[-MAX_DATA:]),
        results=dict(list(results.items())[-MAX_DATA:]),
    )


def retried(case: EngineCase, step: str, item: str, cause: str) -> EngineCase:
    """The case after a retry of an item was ordered by a step; once, however often it is said."""
    if any(one[0] == step for one in case.ledger):
        return case
    return replace(case, ledger=(*case.ledger, (step, item, cause))[-MAX_LEDGER:])


def _few(items: dict[str, str]) -> dict[str, str]:
    if len(items) <= MAX_ITEMS:
        return items
    spare = len(items) - MAX_ITEMS
    gone = [name for name, state in items.items() if state in ("completed", "cancelled")][:spare]
    for name in gone:
        del items[name]
    return dict(list(items.items())[-MAX_ITEMS:])
