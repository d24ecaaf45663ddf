"""The state of a case: its items, its compensation stack, who holds it.

It is small and made to be carried: ids, counts, bitmaps and small values, never jobs. `FlowRun.as_plain` gives JSON types and
`FlowRun.from_plain` reads them back, so that a workflow can continue as new between any two events. The flow itself is not part of the
state; a case is pinned to its flow's version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.execution.compensation import CompensationEntry
from forestay.domain.flows.scatter.fan_out import FanOut, Piece

MAX_VERBS = 512
"""So many verb ids are remembered. What was forgotten cannot be done twice either: a verb that is not newer than the newest forgotten
one is refused, since it might be its repeat."""


FORMAT = 1
"""Of the state as it is carried. A release reads every earlier one."""


class ItemState(StrEnum):
    """Where an item stands."""

    WAITING = "waiting"
    """What it comes after has not ended, or someone holds it."""
    LISTING = "listing"
    """Its files are being listed."""
    BINDING = "binding"
    """A flow for its place is being looked for."""
    RUNNING = "running"
    """Its jobs, cases or inner tasks are under way; also while they are being cancelled."""
    FAULTED = "faulted"
    """It ended badly and waits for a rule or a person."""
    COMPLETED = "completed"
    FORCED_COMPLETE = "forced_complete"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Removed, or never begun because of something before it."""


ENDED = frozenset(
    {
        ItemState.COMPLETED,
        ItemState.FORCED_COMPLETE,
        ItemState.SKIPPED,
        ItemState.FAILED,
        ItemState.CANCELLED,
    }
)
BEGUN = frozenset({ItemState.LISTING, ItemState.BINDING, ItemState.RUNNING})


class RunPhase(StrEnum):
    """Where a case stands."""

    RUNNING = "running"
    STOPPING = "stopping"
    """It is to end (see `FlowRun.ending`): nothing new begins, what runs ends or is cancelled."""
    COMPENSATING = "compensating"
    FINISHED = "finished"


class RunEnding(StrEnum):
    """What a stopping case is on its way to."""

    FAIL = "fail"
    FORCE_COMPLETE = "force-complete"
    REMOVE = "remove"
    UNDO = "undo"
    RESTART = "restart"


class EndCheck(StrEnum):
    """Whether a case may end when all its items have."""

    NONE = ""
    """Nobody is asked."""
    WANTED = "wanted"
    ASKED = "asked"
    DONE = "done"


class ItemVerdict(StrEnum):
    """What an item becomes as soon as its present work has ended, whatever that brings."""

    AGAIN = "again"
    SKIPPED = "skipped"
    FORCED_COMPLETE = "forced_complete"
    FAILED = "failed"
    FORCE_FAILED = "force_failed"
    """Failed by hand: the tasks after it go on."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Item:
    """A task's instance in a case."""

    id: str
    """The task's name; inside a loop or choice after the round that it belongs to: ``refine@1/3/fit``."""
    task: str
    block: str = ""
    state: ItemState = ItemState.WAITING
    round: int = 0
    """Counts up each time it begins."""
    fan: FanOut | None = None
    listings: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Listing and length, by dimension."""
    sizes: tuple[int, ...] = ()
    exit_code: int | None = None
    result: object = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    """Of what is no job: a loop, a choice, a merge, a sub-flow."""
    well: int = 0
    bad: int = 0
    count: int = 0
    """Elements of its last round, and how they ended."""
    forced: bool = False
    """It failed by hand: that is no failure of the case."""
    layout: tuple[Piece, ...] = ()
    done: tuple[Piece, ...] = ()
    """Of a scatter of which elements failed: how it was cut, and the elements that ended well in this round or earlier ones."""
    undoable: int = 0
    """Elements that are cases and left compensations of their own."""
    kept: bool = False
    """This round does only what earlier ones left."""
    earlier: tuple[str, ...] = ()
    """Those earlier rounds, the newest first."""
    verdict: ItemVerdict | None = None
    reason: str = ""
    holders: tuple[str, ...] = ()
    changes: Mapping[str, object] = field(default_factory=dict)
    bound: str = ""
    """The version of the flow in a worklet's place."""
    bound_params: Mapping[str, object] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()
    """The open blocks inside it: the present round of a loop, the branches taken of a choice."""
    iteration: int = 0
    previous: Mapping[str, object] = field(default_factory=dict)
    """What the tasks of a loop's last round came to."""
    timer: bool = False
    checked: bool = False
    """Whether it may begin was looked at, and seen to."""
    began: int = field(default=0, compare=False)
    finished: int = field(default=0, compare=False)
    """When its present round began and ended, for people; nothing is decided by it, and it says nothing of what a case came to."""

    @property
    def work(self) -> str:
        return f"{self.id}@{self.round}"

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def as_plain(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, default in _ITEM_DEFAULTS.items():
            value = getattr(self, name)
            if value != default or (isinstance(value, bool) and value is not default):
                out[name] = value
        if self.fan is not None:
            out["fan"] = self.fan.as_plain()
        for name in _ITEM_TUPLES & out.keys():
            out[name] = list(out[name])
        for name in _ITEM_PIECES & out.keys():
            out[name] = [list(piece) for piece in out[name]]
        if self.listings:
            out["listings"] = {name: list(listing) for name, listing in self.listings.items()}
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Item:
        values = dict(data)
        for name in _ITEM_TUPLES & values.keys():
            values[name] = tuple(values[name])
        for name in _ITEM_PIECES & values.keys():
            values[name] = tuple(Piece(*piece) for piece in values[name])
        if "fan" in values:
            values["fan"] = FanOut.from_plain(values["fan"])
        if "listings" in values:
            values["listings"] = {name: (one[0], one[1]) for name, one in values["listings"].items()}
        values["state"] = ItemState(values.get("state", ItemState.WAITING))
        if "verdict" in values:
            values["verdict"] = ItemVerdict(values["verdict"])
        return cls(**values)


_ITEM_TUPLES = frozenset({"sizes", "holders", "blocks", "earlier"})
_ITEM_PIECES = frozenset({"layout", "done"})
_ITEM_DEFAULTS: dict[str, object] = {
    one.name: _default for one in fields(Item) for _default in [getattr(Item("", ""), one.name)]
}


@dataclass(frozen=True, slots=True)
class SettledCompensation:
    """A compensation that a person declared settled without its having ended well."""

    number: int
    item: str
    verb: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A case as it stands."""

    plan: FlowPlan = field(compare=False, repr=False)
    case: str
    params: Mapping[str, object]
    started: int
    phase: RunPhase = RunPhase.RUNNING
    items: Mapping[str, Item] = field(default_factory=dict)
    stack: tuple[CompensationEntry, ...] = ()
    """The last one is the top."""
    settled: tuple[SettledCompensation, ...] = ()
    pushed: int = 0
    """Compensations ever pushed."""
    holders: tuple[str, ...] = ()
    ending: RunEnding | None = None
    reason: str = ""
    failed: bool = False
    """Some item has failed; the rest is still done."""
    verbs: tuple[str, ...] = ()
    verb_times: tuple[int, ...] = ()
    forgotten: int = -1
    """The time of the newest verb that is no longer remembered."""
    restarts: int = 0
    outcome: RunOutcome | None = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    open: bool = False
    """Of a Python flow: its function has not returned, more items may come."""
    check: EndCheck = EndCheck.NONE

    @property
    def version(self) -> str:
        """The content hash of the flow that the case is pinned to."""
        return self.plan.version

    def as_plain(self) -> dict[str, Any]:
        """As JSON types, with the version of the flow that it belongs to."""
        out = {
            "format": FORMAT,
            "version": self.plan.version,
            "case": self.case,
            "params": self.params,
            "started": self.started,
            "phase": self.phase.value,
            "items": [item.as_plain() for item in self.items.values()],
            "stack": [entry.as_plain() for entry in self.stack],
            "settled": [[one.number, one.item, one.verb, one.by, one.reason] for one in self.settled],
            "pushed": self.pushed,
            "holders": list(self.holders),
            "ending": self.ending.value if self.ending else None,
            "reason": self.reason,
            "failed": self.failed,
            "verbs": list(self.verbs),
            "verb_times": list(self.verb_times),
            "forgotten": self.forgotten,
            "restarts": self.restarts,
            "outcome": self.outcome.value if self.outcome else None,
            "outputs": self.outputs,
        }
        if self.check:
            out["check"] = self.check.value
        return out | {"open": True} if self.open else out

    @classmethod
    def from_plain(cls, plan: FlowPlan, data: Mapping[str, Any]) -> FlowRun:
        """Read a state back; its flow must be the one that the case is pinned to."""
        if data["format"] > FORMAT:
            raise ValueError(f"the state has format {data['format']}; this release supports up to {FORMAT}")
        if data["version"] != plan.version:
            raise ValueError(f"the run is pinned to flow {data['version']}, not {plan.version}")
        items = [Item.from_plain(item) for item in data["items"]]
        return cls(
            plan=plan,
            case=data["case"],
            params=data["params"],
            started=data["started"],
            phase=RunPhase(data["phase"]),
            items={item.id: item for item in items},
            stack=tuple(CompensationEntry.from_plain(entry) for entry in data["stack"]),
            settled=tuple(SettledCompensation(*one) for one in data["settled"]),
            pushed=data["pushed"],
            holders=tuple(data["holders"]),
            ending=RunEnding(data["ending"]) if data["ending"] else None,
            reason=data["reason"],
            failed=data["failed"],
            verbs=tuple(data["verbs"]),
            verb_times=tuple(data["verb_times"]),
            forgotten=data["forgotten"],
            restarts=data["restarts"],
            outcome=RunOutcome(data["outcome"]) if data["outcome"] else None,
            outputs=data["outputs"],
            open=data.get("open", False),
            check=EndCheck(data.get("check", "")),
        )


def item_at(items: Mapping[str, Item], work: str) -> Item | None:
    """The item whose present round this is."""
    item = items.get(work.rpartition("@")[0])
    return item if item is not None and item.work == work else None


def fan_out_of(items: Mapping[str, Item], stack: Sequence[CompensationEntry], work: str) -> FanOut | None:
    """The elements of a round of an item, or of the compensation that is being run."""
    entry = stack[-1] if stack else None
    if entry is not None and entry.fan is not None and entry.undo == work:
        return entry.fan
    item = item_at(items, work)
    return item.fan if item is not None else None
