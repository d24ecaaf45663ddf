"""A flow: a directed graph of tasks, identified by the digest of its content.

Edges are of three kinds. Dependency: a task names the tasks that it comes ``after``. Data: a task refers to a value or an output of another, and therefore comes
after it. Control: a condition on a task, the branches of a choice, the rounds of a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forestay.domain.flows.definition.flow_pattern import (
    Branch,
    ChoicePattern,
    Dimension,
    JobPattern,
    LoopPattern,
    Pattern,
)


class WhenFailed(StrEnum):
    """What a task's failure means for its run."""

    FAIL = "fail"
    """The run fails: it is stopped and compensated."""
    HOLD = "hold"
    """The task stays faulted until a rule or a person decides."""
    IGNORE = "ignore"
    """The tasks after it continue."""


class OnFailure(StrEnum):
    """What becomes of the rest of a run that fails, before it is compensated."""

    STOP = "stop"
    """Nothing new begins; running tasks may finish."""
    CANCEL = "cancel"
    """Running tasks are cancelled."""
    GO_ON = "go-on"
    """Every task that does not depend on the failed one still runs."""


class DeadlineAction(StrEnum):
    """What happens at a deadline."""

    FAIL = "fail"
    REPORT = "report"
    """It is reported, for a rule to answer; nothing else changes."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds from the beginning of a task or a run."""

    seconds: int
    then: DeadlineAction = DeadlineAction.FAIL


@dataclass(frozen=True, slots=True)
class Compensation:
    """The job that undoes a succeeded task; for a scatter, once for each element that succeeded."""

    job: JobPattern
    tries: int = 3
    """How often it is run before it is held for a person."""


@dataclass(frozen=True, slots=True)
class Task:
    """A node of the flow."""

    name: str
    pattern: Pattern
    after: tuple[str, ...] = ()
    when: str = ""
    """A condition; the task is skipped if it does not hold."""
    scatter: tuple[Dimension, ...] = ()
    tolerate: int = 0
    """The number of scatter elements that may fail."""
    compensation: Compensation | None = None
    action: str = ""
    """The key of its compensation in the library; empty: its flow's name and its own."""
    deadline: Deadline | None = None
    when_failed: WhenFailed = WhenFailed.FAIL


@dataclass(frozen=True, slots=True)
class Flow:
    """The specification of runs."""

    name: str
    tasks: tuple[Task, ...]
    params: Mapping[str, object] = field(default_factory=dict)
    """Parameters and their defaults; ``None``: the run must give one."""
    outputs: Mapping[str, object] = field(default_factory=dict)
    deadline: Deadline | None = None
    on_failure: OnFailure = OnFailure.STOP
    flows: Mapping[str, Flow] = field(default_factory=dict)
    """Sub-flows by the name that tasks use."""
    reuse: bool = False
    """Results of earlier runs are reused where everything that a job depends on is the same."""


def bodies(pattern: Pattern) -> tuple[Branch, ...]:
    """The blocks of tasks inside a task: a loop's body, a choice's branches."""
    if isinstance(pattern, LoopPattern):
        return (Branch("", pattern.tasks),)
    if isinstance(pattern, ChoicePattern):
        otherwise = (Branch(OTHERWISE, pattern.otherwise),) if pattern.otherwise else ()
        return pattern.branches + otherwise
    return ()


OTHERWISE = "otherwise"


def all_tasks(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """All tasks, including those inside loops and choices, in the order of the document."""
    for task in tasks:
        yield task
        for body in bodies(task.pattern):
            yield from all_tasks(body.tasks)
