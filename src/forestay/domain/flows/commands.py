"""The commands of a run to its environment. Each may be repeated without harm: it states the desired result, not a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class RunOutcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FORCED_COMPLETE = "forced_complete"
    FAILED = "failed"
    """Every compensation has been run."""
    REMOVED = "removed"
    UNDONE = "undone"
    """It had completed; then the run that started it failed, and every compensation has been run."""


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """What the jobs of one round of a task share; together with the flow it suffices to create them."""

    work: str
    """Names the round: ``align@2`` is the second of instance ``align``, ``align@2!1.1`` the first try to undo it.
    A job's id is made of run, work and index, so that a repeated submission finds the jobs of the first."""
    instance: str
    task: str
    undo: bool = False
    """The jobs are the task's compensation."""
    sizes: tuple[int, ...] = ()
    """How many values each dimension of the scatter has; empty: one job without an element."""
    listings: Mapping[str, str] = field(default_factory=dict)
    """The stored listing of each dimension that is one."""
    scope: Mapping[str, object] = field(default_factory=dict)
    """The value of every reference in the task that is not to its own elements."""
    changes: Mapping[str, object] = field(default_factory=dict)
    """Fields of the task that a person or a rule replaced for this round."""
    checked: bool = False
    """Whether the round may begin was checked already."""
    spelt: str = ""
    """The task itself if no stored flow contains it: that of a Python flow. As text, since the order of names in it matters."""
    prompt: bool = False
    """Another task consumes its elements one by one: their completions are reported promptly."""
    action: str = ""
    version: str = ""
    """The jobs are this version of the library's compensation for an action, and not one of the flow."""


@dataclass(frozen=True, slots=True)
class SubmitJobs:
    """Create the jobs first … first + count - 1 of a round, but for those in ``skip`` (a bitmap from ``first``)."""

    order: WorkOrder
    first: int
    count: int
    skip: int = 0
    holders: tuple[str, ...] = ()
    wait: bool = True
    of: int = 0
    """Of elements that become ready one by one: how many there will be in all. If these jobs can never be made, only they have failed."""


@dataclass(frozen=True, slots=True)
class StartShard:
    """Start a shard that follows a number of jobs of a round."""

    order: WorkOrder
    shard: int
    first: int
    count: int
    skip: int = 0
    holders: tuple[str, ...] = ()
    wait: bool = True
    open: bool = False
    """More elements may come, by `GrowShard`."""
    streams: bool = False
    """Its elements become ready one by one, by `FeedShard`."""


@dataclass(frozen=True, slots=True)
class GrowShard:
    """The number of elements of a shard by now; if not ``open``, no more will come."""

    work: str
    shard: int
    count: int
    open: bool


@dataclass(frozen=True, slots=True)
class FeedShard:
    """The inputs of these elements of a shard are available; see `ElementsReady`."""

    work: str
    shard: int
    ready: int
    closed: bool = False
    works: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FollowShard:
    """Have a shard of another round report its succeeded elements to this one; see `ShardFollowed`."""

    work: str
    shard: int
    of: str
    """The other round."""
    at: int
    """The shard of it that has the same elements."""


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a sub-flow as a run of its own, for one element of a round."""

    order: WorkOrder
    index: int
    flow: str
    """The flow's version."""
    params: Mapping[str, object] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    domain: str = ""
    """The domain in which its task says it may run; empty: here."""


@dataclass(frozen=True, slots=True)
class UndoRun:
    """Undo a sub-flow's run that completed: `undo_run` on its last state. Answered by `RunEnded` with this ``work``, well when it is undone."""

    work: str
    """The attempt at the compensation."""
    of: str
    """The round that started the run."""
    index: int


@dataclass(frozen=True, slots=True)
class FindCompensation:
    """Ask the library what compensates an action now; answered by `CompensationFound`."""

    work: str
    number: int
    """The number of the entry on the stack."""
    action: str


@dataclass(frozen=True, slots=True)
class BindWorklet:
    """Ask which flow a late-bound task runs; answered by `WorkletBound`."""

    work: str
    instance: str
    late_bound: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Put a question into the inbox, with its texts filled in. The answer comes as a verb, and the run takes the first."""

    work: str
    instance: str
    round: int
    title: str
    text: str = ""
    form: Mapping[str, object] = field(default_factory=dict)
    who: tuple[str, ...] = ()
    until: int | None = None
    default: Mapping[str, object] | None = None


class QuestionOutcome(StrEnum):
    """The outcome of a question."""

    ANSWERED = "answered"
    DEFAULT = "default"
    """Nobody answered in time; the default is the answer."""
    EXPIRED = "expired"
    """Nobody answered in time, and there is no default."""
    WITHDRAWN = "withdrawn"
    """Its task was skipped, redone or cancelled."""


@dataclass(frozen=True, slots=True)
class CloseQuestion:
    """Remove a question from the inbox, and record its outcome."""

    work: str
    outcome: QuestionOutcome = QuestionOutcome.WITHDRAWN
    by: str = ""
    answer: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AwaitEvent:
    """Wait for an event from outside; answered by `EventArrived`, at once if one came before."""

    work: str
    event: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class CloseWait:
    """Stop waiting for an event: it was taken, or nothing waits for it any more."""

    work: str
    event: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """Store a listing and report its length; answered by `FilesListed`. ``lines``: those of the file at ``pattern``."""

    work: str
    instance: str
    dimension: str
    pattern: str
    lines: bool = False


@dataclass(frozen=True, slots=True)
class WatchFiles:
    """Keep a growing listing; answered by `FilesAppeared`, again and again. A listing only grows and is never put in another order."""

    work: str
    instance: str
    dimension: str
    pattern: str
    until_file: str = ""
    until_count: int | None = None
    until_quiet: int | None = None


@dataclass(frozen=True, slots=True)
class StopWatch:
    """Stop watching for new files."""

    work: str


@dataclass(frozen=True, slots=True)
class StartTimer:
    timer: str
    at: int
    """Milliseconds since 1970, as every time."""


@dataclass(frozen=True, slots=True)
class CancelTimer:
    timer: str


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Cancel the jobs or runs of a round: those that have not ended fail, and are reported like any completion."""

    work: str
    count: int
    """Elements that the run itself manages: jobs, or runs when the task is a sub-flow."""
    shards: int
    """Shards to be notified."""
    remove: bool = False
    """Sub-runs are removed with the run, and not compensated."""


@dataclass(frozen=True, slots=True)
class HoldWork:
    """Put a holder on the jobs or runs of a round that have not ended, and on those that its shards still submit."""

    work: str
    holder: str
    count: int
    shards: int


@dataclass(frozen=True, slots=True)
class ContinueWork:
    """Remove this holder again."""

    work: str
    holder: str
    count: int
    shards: int


@dataclass(frozen=True, slots=True)
class SignalAncestors:
    """Forward a verb (as JSON types) to the run that started this one, with its id; that run forwards it in turn."""

    verb: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Report:
    """Report an event to the exception service and the story; ``id`` is the same in every repetition."""

    id: str
    kind: str
    instance: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """Check whether the run may end as it is; answered by `RunChecked`."""

    outputs: Mapping[str, object] = field(default_factory=dict)
    """The outputs that it would end with."""


@dataclass(frozen=True, slots=True)
class AnswerVerb:
    """Report the result of a verb to its sender."""

    verb: str
    accepted: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class FinishRun:
    """The run has ended. Its last command."""

    outcome: RunOutcome
    outputs: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    left: int = 0
    """The number of compensations that were not run: the run completed, or was removed on purpose. While the run that started it has not
    ended, the state of a run that left some must be kept: it may have to be undone."""


Command = (
    SubmitJobs
    | StartShard
    | GrowShard
    | FeedShard
    | FollowShard
    | StartRun
    | UndoRun
    | FindCompensation
    | BindWorklet
    | AskPerson
    | CloseQuestion
    | AwaitEvent
    | CloseWait
    | ListFiles
    | WatchFiles
    | StopWatch
    | StartTimer
    | CancelTimer
    | CancelWork
    | HoldWork
    | ContinueWork
    | SignalAncestors
    | Report
    | CheckRun
    | AnswerVerb
    | FinishRun
)
