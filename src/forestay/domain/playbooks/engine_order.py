"""Commands to other engines: what a playbook or a person wants done to one of their runs or tasks, in terms that every engine can implement.

An order is written once, under an id derived from its origin; a repeated step finds the order that was written first. An engine answers each with
*done* or *refused*, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.playbooks.action import Amount, NeedChange

MAX_OPEN = 500
"""The most orders that may wait for one engine."""
_SPACE = UUID("f2a7a2fe-1df0-5d3e-9a3b-7f0a8f1b8f33")


class OrderVerb(StrEnum):
    """The requested action; an engine refuses one that it cannot do."""

    SUSPEND = "suspend"
    """Do not continue it; running work may finish."""
    CONTINUE = "continue"
    """Remove the holder of a suspension; others may still hold."""
    RESTART = "restart"
    """Task: run it again, as it began. Run: restart it."""
    RESUBMIT = "resubmit"
    """Task: run it again after `wait` seconds, with `needs` changed."""
    REDO = "redo"
    SKIP = "skip"
    REPLACE = "replace"
    FORCE_COMPLETE = "force-complete"
    """It counts as done; `data.result`, if given, is its result."""
    FORCE_FAIL = "force-fail"
    REMOVE = "remove"
    SET_DATA = "set-data"
    """Change data of the run from now on."""


SETTLING = frozenset(OrderVerb) - {OrderVerb.SUSPEND, OrderVerb.CONTINUE, OrderVerb.SET_DATA}
"""Those that settle a task."""


class OrderOutcome(StrEnum):
    """The answer of an engine."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """One order."""

    id: str
    run: str
    """Our id of the run."""
    key: str
    """The engine's own name of it."""
    verb: OrderVerb
    at: int
    instance: str = ""
    """Empty: the run."""
    holder: str = ""
    """The holder, for suspend and continue."""
    wait: int = 0
    """Seconds."""
    needs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """How needs change: by a ``factor``, or ``to`` an amount, ``at_most`` up to a bound."""
    data: Mapping[str, object] = field(default_factory=dict)
    by: str = ""
    reason: str = ""
    incident: str = ""
    step: str = ""
    """The step of the playbook that gave it; empty: a person gave it."""

    def as_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "id": self.id,
            "run": self.run,
            "key": self.key,
            "verb": self.verb.value,
            "at": self.at,
        }
        more: dict[str, Any] = {
            "instance": self.instance, "holder": self.holder, "wait": self.wait, "by": self.by, "reason": self.reason, "incident": self.incident,
            "step": self.step, "needs": {name: dict(record) for name, record in self.needs.items()}, "data": dict(self.data),
        }  # fmt: skip
        return plain | {name: value for name, value in more.items() if value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EngineOrder:
        known = {name: plain[name] for name in cls.__slots__ if name in plain}
        return cls(**known | {"verb": OrderVerb(plain["verb"])})


def order_id(run: str, verb: str) -> str:
    """The id of an order; the same verb to the same run is one order."""
    return str(uuid5(_SPACE, f"{len(run)}:{run}{verb}"))


def order_of(verb: Verb, *, run: str, key: str, incident: str = "") -> EngineOrder | None:
    """A verb as an order; ``None``: an engine cannot do anything about it."""
    if verb.kind in (VerbKind.RAISE, VerbKind.ANSWER, VerbKind.REBIND):
        return None
    return EngineOrder(
        id=order_id(run, verb.id),
        run=run,
        key=key,
        verb=OrderVerb(verb.kind.value),
        at=verb.at,
        instance=verb.instance,
        holder=(verb.holder or verb.by) if verb.kind in (VerbKind.SUSPEND, VerbKind.CONTINUE) else "",
        data=dict(verb.changes),
        by=verb.by,
        reason=verb.reason,
        incident=incident,
        step=verb.id if incident else "",
    )


def needs_as_plain(needs: Mapping[Amount, NeedChange]) -> dict[str, dict[str, float]]:
    """Changed needs as an engine reads them."""
    plain: dict[str, dict[str, float]] = {}
    for amount, need in needs.items():
        fields = {"factor": need.factor, "to": need.to, "at_most": need.at_most}
        plain[amount.value] = {name: value for name, value in fields.items() if value is not None}
    return plain
