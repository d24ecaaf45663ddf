"""The events of a run. An event that is repeated, late, or about something the run does not know changes nothing.

All but the verbs are idempotent by nature: they state a fact about a round (ended elements, the length of a listing), and a repeated
fact changes nothing. A verb has an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class JobsAccepted:
    """The store has acknowledged jobs of a round that the run itself submitted; for fire and forget."""

    at: int
    work: str
    first: int = 0
    count: int | None = None
    """As in the command; ``None``: every job submitted so far."""


@dataclass(frozen=True, slots=True)
class JobsEnded:
    """Jobs of a round that the run itself follows have ended: sets of their indexes. Earlier ends may be repeated."""

    at: int
    work: str
    well: int = 0
    bad: int = 0
    skipped: int = 0
    """Jobs that need not run; they count neither as succeeded nor as failed. A cancelled job counts as failed."""
    exit_code: int | None = None
    """The exit code, if the round has a single job."""
    result: object = None
    """The content of the result file, if the round has a single job."""
    reason: str = ""
    """Why one of them failed."""


@dataclass(frozen=True, slots=True)
class ShardEnded:
    """A shard's final report: how many of its jobs ended how, and which succeeded if not all did."""

    at: int
    work: str
    shard: int
    well: int
    bad: int
    skipped: int = 0
    done: int | None = None
    """The set of the jobs that succeeded, from the shard's first; ``None``: all of them."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A sub-flow's run has ended."""

    at: int
    work: str
    index: int
    well: bool
    outputs: Mapping[str, object] = field(default_factory=dict)
    reason: str = ""
    left: int = 0
    """The number of compensations that it left, as in its last command."""


@dataclass(frozen=True, slots=True)
class FilesListed:
    """A listing is stored under a name and has so many members."""

    at: int
    work: str
    dimension: str
    listing: str
    count: int


@dataclass(frozen=True, slots=True)
class FilesAppeared:
    """A watched listing has so many members by now; ``ended``: no more will come."""

    at: int
    work: str
    dimension: str
    listing: str
    count: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class WorkletBound:
    """The flow of a late-bound task; an empty ``flow``: nobody binds it."""

    at: int
    work: str
    flow: str
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompensationFound:
    """What the library has for the action of an entry on the stack; an empty ``version``: nothing."""

    at: int
    number: int
    version: str = ""
    tries: int = 0


@dataclass(frozen=True, slots=True)
class EventArrived:
    """An event for which a task waits has come from outside."""

    at: int
    work: str
    id: str
    by: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkRefused:
    """A round cannot be begun, now or ever: a bad address, a flow that does not exist."""

    at: int
    work: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoundHeld:
    """A constraint of a round is not met, and its answer is in progress: the task waits until the holder is removed.

    ``again``: nothing of the round was begun; it then starts again, with the data of that time. Otherwise its work has ended, and its task then ends.
    """

    at: int
    work: str
    incident: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class RunChecked:
    """The run was checked whether it may end; with an incident it waits until the holder is removed."""

    at: int
    incident: str = ""


@dataclass(frozen=True, slots=True)
class TimerFired:
    at: int
    timer: str


class VerbKind(StrEnum):
    """What people and rules may do to a task or a run."""

    REDO = "redo"
    """Run the task again, and every task after it that had begun."""
    SKIP = "skip"
    """End the task; the tasks after it continue as if it had had nothing to do."""
    REPLACE = "replace"
    """Redo with changes: other fields of its job, or another flow in its place."""
    RESTART = "restart"
    """Restart the run (or, for a task, that task) from the beginning; what was done before can still be compensated."""
    SUSPEND = "suspend"
    CONTINUE = "continue"
    """Remove the sender's holder; others may still hold."""
    FORCE_COMPLETE = "force-complete"
    FORCE_FAIL = "force-fail"
    """Task: it fails, and the tasks after it continue (P1). Run: it fails and is compensated."""
    REMOVE = "remove"
    """Task: it is cancelled, and so is everything after it. Run: everything stops and nothing is compensated."""
    RAISE = "raise"
    """Report an exception; nothing else changes."""
    SET_DATA = "set-data"
    """Change parameters of the run: tasks that begin afterwards see the new values."""
    ANSWER = "answer"
    """Answer the question that the task asks; the answer is in ``changes``. The sender has checked who may answer."""
    REBIND = "rebind"
    """Give a compensation of the library on the stack another version: ``version`` and ``tries`` in ``changes``, which the sender has looked up."""


@dataclass(frozen=True, slots=True)
class Verb:
    """An order by a person or a rule. Its id and time are given by who sends it, and are the same in every repeat."""

    at: int
    id: str
    kind: VerbKind
    instance: str = ""
    """Empty: the run. ``!3``: the compensation number 3."""
    by: str = ""
    holder: str = ""
    """The holder, for suspend and continue; ``by`` if left out."""
    reason: str = ""
    changes: Mapping[str, object] = field(default_factory=dict)
    round: int | None = None
    """The verb applies only while the task is in this round."""
    only_failed: bool = False
    """For redo and replace on a scatter that has ended: succeeded elements stay as they are."""
    ancestors: bool = False
    """The verb also applies to the run that started this one, and to those above it."""
    begun_by: int | None = None
    """The verb applies only to runs that had begun by then: a verb for all runs of a flow does not apply to later ones."""


Event = (
    JobsAccepted
    | JobsEnded
    | ShardEnded
    | RunEnded
    | FilesListed
    | FilesAppeared
    | WorkletBound
    | CompensationFound
    | EventArrived
    | WorkRefused
    | RoundHeld
    | RunChecked
    | TimerFired
    | Verb
)
