"""The typed events that rules may answer: the ten exception types of paper P1, and the selection of a worklet.

A rule set has at most one tree set for each of the eleven. The tree set of a run-level type has exactly one tree; that of an
task-level type has one tree for each task that has rules.
"""

from __future__ import annotations

from enum import StrEnum


class ExceptionType(StrEnum):
    """What kind of event happened; the value is its name in documents, in the interface and on the command line."""

    RUN_PRE = "run-pre"
    """A run begins: may it?"""
    RUN_POST = "run-post"
    """A run is complete: is what it left behind as it should be?"""
    TASK_PRE = "task-pre"
    """A task is enabled: may it start?"""
    TASK_POST = "task-post"
    """A task is complete: is its result as it should be?"""
    ABORT = "abort"
    """An attempt at a task's job did not end well."""
    TIMEOUT = "timeout"
    """A task missed its deadline; the rules see the tasks that run in parallel to it too."""
    RESOURCE_UNAVAILABLE = "resource-unavailable"
    """Nothing can take a task's job: no pilot fits, no site is open, no space is left."""
    CONSTRAINT_VIOLATION = "constraint-violation"
    """Something that must hold while a task executes does not hold any more."""
    RUN_EXTERNAL = "run-external"
    """A person, or a system outside, raised it for a run."""
    TASK_EXTERNAL = "task-external"
    """A person, or a system outside, raised it for a task."""
    SELECTION = "selection"
    """No exception: a task that is bound late asks which worklet to run."""

    @property
    def of_run(self) -> bool:
        """Whether it concerns a run as a whole; otherwise it concerns one task."""
        return self in RUN_LEVEL


RUN_LEVEL = frozenset({ExceptionType.RUN_PRE, ExceptionType.RUN_POST, ExceptionType.RUN_EXTERNAL})
EXCEPTIONS = frozenset(ExceptionType) - {ExceptionType.SELECTION}
"""The ten of the paper."""
CONSTRAINTS = frozenset(
    {ExceptionType.RUN_PRE, ExceptionType.RUN_POST, ExceptionType.TASK_PRE, ExceptionType.TASK_POST}
)
"""Those for which a run or a task waits until they are answered."""
RAISED = frozenset({ExceptionType.RUN_EXTERNAL, ExceptionType.TASK_EXTERNAL})
"""Those that people raise."""
EXECUTING = frozenset({ExceptionType.ABORT, ExceptionType.CONSTRAINT_VIOLATION, ExceptionType.TASK_EXTERNAL})
"""Those whose task has begun to execute, so that it can be restarted."""
