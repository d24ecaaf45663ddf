"""What a task can be: a job, a sub-flow, a late-bound worklet, a merge, a question, a wait for an event, a loop, a choice; and what it is scattered over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from forestay.domain.jobs.inputs import Staging
from forestay.domain.jobs.job_secrets import SecretReference
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import CheckpointPolicy, Effects, RetryPolicy

if TYPE_CHECKING:
    from forestay.domain.flows.definition.flow import Task


@dataclass(frozen=True, slots=True)
class JobPattern:
    """One job, or one for each element of a scatter. The fields are those of a job's specification and mean the same.

    Texts may hold references. Those to a scatter's own variables stay in the specification as ``{name}``, filled in for each job from its
    parameters; all others are filled in when the task begins.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The name of a file in the job's folder, and where it comes from: an address, or the output of a task."""
    staging: Staging = Staging.PARALLEL
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The name by which other tasks refer to an output, and the pattern of its files."""
    result: str = ""
    """A file of JSON among the outputs whose content is the task's result, for conditions and references; small."""
    container: str = ""
    """The image that the command runs in; empty for none. May hold references, but not to a scatter's own variables."""
    effects: Effects = Effects.INTERNAL
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    expected_runtime: int | None = None
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    wait: bool = True
    """False: fire and forget. The task succeeds when its jobs are accepted."""
    requires: str = ""
    licences: Mapping[str, int] = field(default_factory=dict)
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    checkpoint: CheckpointPolicy | None = None


@dataclass(frozen=True, slots=True)
class SubflowPattern:
    """Another flow, run as a run of its own: one kept in this flow by name, or any by its version."""

    flow: str
    params: Mapping[str, object] = field(default_factory=dict)
    domain: str = ""
    """Where it may run: in this domain only, in a named peer, or, with ``any``, wherever it is expected to end first."""


@dataclass(frozen=True, slots=True)
class WorkletPattern:
    """A late-bound task: its flow is bound when it starts, by whoever is responsible for it."""

    late_bound: str
    params: Mapping[str, object] = field(default_factory=dict)
    default: str = ""
    """The flow to run if none is bound: one kept in this flow by name, or any by its version."""


@dataclass(frozen=True, slots=True)
class MergePattern:
    """Gathers values of tasks before it under its own name. It runs nothing."""

    values: Mapping[str, object]


OWNER = "owner"
ROLE, USER = "role:", "user:"
"""Who may answer a question: the run's owner, everyone with a role, or a person by name."""


@dataclass(frozen=True, slots=True)
class AskPattern:
    """A question to a person. The answer, by the names of the form's fields, is the task's outputs."""

    title: str
    text: str = ""
    form: Mapping[str, Any] = field(default_factory=dict)
    """A small part of JSON Schema, see `answer_form`; empty: the person only confirms."""
    who: tuple[str, ...] = (OWNER, "role:operator")
    """Who may answer: ``owner``, ``role:NAME`` or ``user:NAME``; a name may be a reference."""
    default: Mapping[str, Any] | None = None
    """The answer at the task's deadline; ``None``: the deadline's own action applies."""


@dataclass(frozen=True, slots=True)
class AwaitPattern:
    """Waits for an event from outside. Its data are the task's outputs."""

    event: str
    key: str = ""
    """Which of the events of this name: the sender gives the same key. May hold references."""
    default: Mapping[str, Any] | None = None
    """The outputs at the task's deadline; ``None``: the deadline's own action applies."""


class AtMaximum(StrEnum):
    """What becomes of a loop whose condition is not met after the last round it may take."""

    FAIL = "fail"
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class LoopPattern:
    """Tasks that are run again and again. ``while`` is asked before a round, ``until`` after it."""

    tasks: tuple[Task, ...]
    maximum: int
    while_: str = ""
    until: str = ""
    at_maximum: AtMaximum = AtMaximum.FAIL
    outputs: Mapping[str, object] = field(default_factory=dict)
    """Values of the last round, for the tasks after the loop."""


class BranchSelection(StrEnum):
    """Which branches of a choice are taken."""

    ALL = "all"
    """Every branch whose condition holds, side by side."""
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Branch:
    """Tasks that run if a condition holds; without one, if no other branch does."""

    name: str
    tasks: tuple[Task, ...]
    when: str = ""


@dataclass(frozen=True, slots=True)
class ChoicePattern:
    """Branches of which some are taken."""

    branches: tuple[Branch, ...]
    otherwise: tuple[Task, ...] = ()
    take: BranchSelection = BranchSelection.ALL
    outputs: Mapping[str, object] = field(default_factory=dict)


Pattern = (
    JobPattern
    | SubflowPattern
    | WorkletPattern
    | MergePattern
    | AskPattern
    | AwaitPattern
    | LoopPattern
    | ChoicePattern
)


_KINDS: Mapping[type, str] = {
    JobPattern: "job",
    SubflowPattern: "sub-flow",
    WorkletPattern: "worklet",
    MergePattern: "merge",
    AskPattern: "question",
    AwaitPattern: "wait for an event",
    LoopPattern: "loop",
    ChoicePattern: "choice",
}


def kind_of(pattern: Pattern) -> str:
    """The kind of a task, in a word or two."""
    return _KINDS[type(pattern)]


@dataclass(frozen=True, slots=True)
class ListOf:
    """The members of a list: given literally, or by a reference."""

    values: tuple[object, ...] | str


@dataclass(frozen=True, slots=True)
class RangeOf:
    """The whole numbers from the first up to, not including, the end; each may be a reference."""

    first: int | str
    end: int | str
    step: int = 1


@dataclass(frozen=True, slots=True)
class FilesOf:
    """The files that match a pattern when the task begins, in the order of their names."""

    pattern: str


@dataclass(frozen=True, slots=True)
class LinesOf:
    """The lines of a file; for lists too long to be carried in a run."""

    path: str


@dataclass(frozen=True, slots=True)
class WatchOf:
    """Files as they appear: each adds an element, until one of the end conditions is met."""

    pattern: str
    until_file: str = ""
    """A file that marks the end."""
    until_count: int | None = None
    until_quiet: int | None = None
    """Seconds without a new file."""


Source = ListOf | RangeOf | FilesOf | LinesOf | WatchOf


@dataclass(frozen=True, slots=True)
class Dimension:
    """One variable of a scatter and what it runs over. Several make the product; the last one runs fastest."""

    name: str
    source: Source
