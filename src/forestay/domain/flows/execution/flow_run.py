"""The state of a run: its tasks, its compensation stack, and what holds it.

It is small and made to be carried: ids, counts, bitmaps and small values, never jobs. `FlowRun.as_plain` gives JSON types and
`FlowRun.from_plain` reads them back, so that a workflow can continue as new between any two events. The flow itself is not part of the
state; a run is pinned to its flow's version.
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
"""The number of verb ids that are kept. A dropped verb cannot be applied twice either: a verb that is not newer than the newest dropped
one is refused, since it might be a repetition of it."""


FORMAT = 1
"""The format of the carried state. A release reads every earlier one."""


class InstanceState(StrEnum):
    """The state of a task."""

    WAITING = "waiting"
    """A predecessor has not ended, or someone holds it."""
    LISTING = "listing"
    """Its files are being listed."""
    BINDING = "binding"
    """The flow to run in its place is being chosen."""
    ASKING = "asking"
    """A person is asked."""
    AWAITING = "awaiting"
    """It waits for an event from outside."""
    RUNNING = "running"
    """Its jobs, runs or inner tasks are active, or being cancelled."""
    FAULTED = "faulted"
    """It failed and waits for a rule or a person."""
    COMPLETED = "completed"
    FORCED_COMPLETE = "forced_complete"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Removed, or never begun because of something before it."""


ENDED = frozenset(
    {
        InstanceState.COMPLETED,
        InstanceState.FORCED_COMPLETE,
        InstanceState.SKIPPED,
        InstanceState.FAILED,
        InstanceState.CANCELLED,
    }
)
BEGUN = frozenset(
    {InstanceState.LISTING, InstanceState.BINDING, InstanceState.ASKING, InstanceState.AWAITING, InstanceState.RUNNING}
)


class RunPhase(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    STOPPING = "stopping"
    """It is to end (see `FlowRun.ending`): nothing new begins, running work ends or is cancelled."""
    COMPENSATING = "compensating"
    FINISHED = "finished"


class RunEnding(StrEnum):
    """What a stopping run is on its way to."""

    FAIL = "fail"
    FORCE_COMPLETE = "force-complete"
    REMOVE = "remove"
    UNDO = "undo"
    RESTART = "restart"


class EndCheck(StrEnum):
    """Whether a run may end when all its tasks have."""

    NONE = ""
    """Nobody is asked."""
    WANTED = "wanted"
    ASKED = "asked"
    DONE = "done"


class InstanceVerdict(StrEnum):
    """What a task becomes as soon as its present work has ended, whatever that brings."""

    AGAIN = "again"
    SKIPPED = "skipped"
    FORCED_COMPLETE = "forced_complete"
    FAILED = "failed"
    FORCE_FAILED = "force_failed"
    """Failed by hand: the tasks after it continue."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class TaskInstance:
    """A task's instance in a run."""

    id: str
    """The task's name; inside a loop or choice after the round that it belongs to: ``refine@1/3/fit``."""
    task: str
    block: str = ""
    state: InstanceState = InstanceState.WAITING
    round: int = 0
    """Counts up each time it begins."""
    fan_out: FanOut | None = None
    listings: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Listing and length, by dimension."""
    sizes: tuple[int, ...] = ()
    exit_code: int | None = None
    result: object = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    """The outputs of a task without a job: a loop, a choice, a merge, a sub-flow."""
    well: int = 0
    bad: int = 0
    count: int = 0
    """Elements of its last round, and how they ended."""
    forced: bool = False
    """It failed by hand, which does not count as a failure of the run."""
    layout: tuple[Piece, ...] = ()
    done: tuple[Piece, ...] = ()
    """For a scatter with failed elements: how it was divided, and the elements that succeeded in this round or earlier ones."""
    undoable: int = 0
    """Elements that are runs and left compensations of their own."""
    kept: bool = False
    """This round runs only what earlier ones left undone."""
    earlier: tuple[str, ...] = ()
    """Those earlier rounds, the newest first."""
    verdict: InstanceVerdict | None = None
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
    """The results of the tasks in a loop's last round."""
    timer: bool = False
    checked: bool = False
    """Whether it may begin was checked and settled."""
    seen: int = 0
    """How often the run's data had been changed when it began."""
    as_of: int = -1
    """It was restarted with the run's data after this many changes; below zero: with the present data."""
    began: int = field(default=0, compare=False)
    finished: int = field(default=0, compare=False)
    """When its present round began and ended, for people; it affects no decision and is not part of a run's result."""

    @property
    def work(self) -> str:
        return f"{self.id}@{self.round}"

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def as_plain(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, default in _INSTANCE_DEFAULTS.items():
            value = getattr(self, name)
            if value != default or (isinstance(value, bool) and value is not default):
                out[name] = value
        if self.fan_out is not None:
            out["fan_out"] = self.fan_out.as_plain()
        for name in _INSTANCE_TUPLES & out.keys():
            out[name] = list(out[name])
        for name in _INSTANCE_PIECES & out.keys():
            out[name] = [list(piece) for piece in out[name]]
        if self.listings:
            out["listings"] = {name: list(listing) for name, listing in self.listings.items()}
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> TaskInstance:
        values = dict(data)
        for name in _INSTANCE_TUPLES & values.keys():
            values[name] = tuple(values[name])
        for name in _INSTANCE_PIECES & values.keys():
            values[name] = tuple(Piece(*piece) for piece in values[name])
        if "fan_out" in values:
            values["fan_out"] = FanOut.from_plain(values["fan_out"])
        if "listings" in values:
            values["listings"] = {name: (listing[0], listing[1]) for name, listing in values["listings"].items()}
        values["state"] = InstanceState(values.get("state", InstanceState.WAITING))
        if "verdict" in values:
            values["verdict"] = InstanceVerdict(values["verdict"])
        return cls(**values)


_INSTANCE_TUPLES = frozenset({"sizes", "holders", "blocks", "earlier"})
_INSTANCE_PIECES = frozenset({"layout", "done"})
_INSTANCE_DEFAULTS: dict[str, object] = {
    attribute.name: _default
    for attribute in fields(TaskInstance)
    for _default in [getattr(TaskInstance("", ""), attribute.name)]
}


@dataclass(frozen=True, slots=True)
class SettledCompensation:
    """A compensation that a person declared settled although it has not succeeded."""

    number: int
    instance: str
    verb: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class FlowRun:
    """The present state of a run."""

    plan: FlowPlan = field(compare=False, repr=False)
    run: str
    params: Mapping[str, object]
    started: int
    phase: RunPhase = RunPhase.RUNNING
    instances: Mapping[str, TaskInstance] = field(default_factory=dict)
    stack: tuple[CompensationEntry, ...] = ()
    """The last one is the top."""
    settled: tuple[SettledCompensation, ...] = ()
    pushed: int = 0
    """Compensations ever pushed."""
    holders: tuple[str, ...] = ()
    ending: RunEnding | None = None
    reason: str = ""
    failed: bool = False
    """A task has failed; the rest still runs."""
    verbs: tuple[str, ...] = ()
    verb_times: tuple[int, ...] = ()
    forgotten: int = -1
    """The time of the newest verb whose id was dropped."""
    restarts: int = 0
    outcome: RunOutcome | None = None
    outputs: Mapping[str, object] = field(default_factory=dict)
    open: bool = False
    """The function of a Python flow has not returned; more tasks may come."""
    check: EndCheck = EndCheck.NONE
    former: tuple[Mapping[str, object], ...] = ()
    """The values that each change of its data replaced, the oldest first."""
    dropped: int = 0
    """The number of older changes for which these are no longer known."""
    undone: tuple[str, ...] = ()
    """The tasks that were compensated, at least in part."""
    streams: bool = False
    """Elements of a scatter over another's outputs begin one by one. Runs from before this feature wait for all of them."""
    library: bool = False
    """Completed tasks are looked up in the compensation library. Runs from before the library use only the compensations of their flows."""

    @property
    def data_changes(self) -> int:
        return self.dropped + len(self.former)

    def data_at(self, changes: int) -> Mapping[str, object]:
        """The run's data after this many changes, as far back as known."""
        data = dict(self.params)
        for replaced in reversed(self.former[max(0, changes - self.dropped) :]):
            data.update(replaced)
        return data

    @property
    def version(self) -> str:
        """The content hash of the flow that the run is pinned to."""
        return self.plan.version

    def as_plain(self) -> dict[str, Any]:
        """As JSON types, with the version of the flow that it belongs to."""
        out = {
            "format": FORMAT,
            "version": self.plan.version,
            "run": self.run,
            "params": self.params,
            "started": self.started,
            "phase": self.phase.value,
            "instances": [instance.as_plain() for instance in self.instances.values()],
            "stack": [entry.as_plain() for entry in self.stack],
            "settled": [
                [settled.number, settled.instance, settled.verb, settled.by, settled.reason] for settled in self.settled
            ],
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
        if self.former:
            out |= {"former": list(self.former), "dropped": self.dropped}
        if self.undone:
            out["undone"] = list(self.undone)
        if self.streams:
            out["streams"] = True
        if self.library:
            out["library"] = True
        return out | {"open": True} if self.open else out

    @classmethod
    def from_plain(cls, plan: FlowPlan, data: Mapping[str, Any]) -> FlowRun:
        """Read a state back; its flow must be the one that the run is pinned to."""
        if data["format"] > FORMAT:
            raise ValueError(f"the state has format {data['format']}; this release supports up to {FORMAT}")
        if data["version"] != plan.version:
            raise ValueError(f"the run is pinned to flow {data['version']}, not {plan.version}")
        instances = [TaskInstance.from_plain(instance) for instance in data["instances"]]
        return cls(
            plan=plan,
            run=data["run"],
            params=data["params"],
            started=data["started"],
            phase=RunPhase(data["phase"]),
            instances={instance.id: instance for instance in instances},
            stack=tuple(CompensationEntry.from_plain(entry) for entry in data["stack"]),
            settled=tuple(SettledCompensation(*other_fields) for other_fields in data["settled"]),
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
            former=tuple(data.get("former", ())),
            dropped=data.get("dropped", 0),
            undone=tuple(data.get("undone", ())),
            streams=data.get("streams", False),
            library=data.get("library", False),
        )


def is_streamed(run: FlowRun, instance: TaskInstance) -> bool:
    """Whether a round is active whose elements the run itself manages and consumes one by one."""
    own = instance.fan_out.own if instance.fan_out is not None else None
    return run.streams and own is not None and bool(run.plan.tasks[instance.task].producer)


def asks(run: FlowRun) -> bool:
    """Whether the run waits for a person's answer."""
    return any(instance.state is InstanceState.ASKING for instance in run.instances.values())


def instance_at(instances: Mapping[str, TaskInstance], work: str) -> TaskInstance | None:
    """The task whose present round this is."""
    instance = instances.get(work.rpartition("@")[0])
    return instance if instance is not None and instance.work == work else None


def fan_out_of(instances: Mapping[str, TaskInstance], stack: Sequence[CompensationEntry], work: str) -> FanOut | None:
    """The elements of a round of a task, or of the compensation that is being run."""
    entry = stack[-1] if stack else None
    if entry is not None and entry.fan_out is not None and entry.undo == work:
        return entry.fan_out
    instance = instance_at(instances, work)
    return instance.fan_out if instance is not None else None
