"""The typed events that rules may answer: the ten exception types of paper P1, and the selection of a worklet.

A rule set has at most one tree set for each of the eleven. The tree set of a run-level type has exactly one tree; that of a
task-level type has one tree for each task that has rules.
"""

from __future__ import annotations

from enum import StrEnum


class ExceptionType(StrEnum):
    """What kind of event happened; the value is its name in documents, in the interface and on the command line."""

    RUN_PRE = "run-pre"
    """A run is about to begin: may it?"""
    RUN_POST = "run-post"
    """A run is complete: are its results as expected?"""
    TASK_PRE = "task-pre"
    """A task is enabled: may it start?"""
    TASK_POST = "task-post"
    """A task is complete: is its result as expected?"""
    ABORT = "abort"
    """An attempt at a task's job failed."""
    TIMEOUT = "timeout"
    """A task missed its deadline; the rules see the tasks that run in parallel to it too."""
    RESOURCE_UNAVAILABLE = "resource-unavailable"
    """Nothing can run a task's job: no pilot fits, no site is open, no space is left."""
    CONSTRAINT_VIOLATION = "constraint-violation"
    """A constraint on a task's execution is violated."""
    RUN_EXTERNAL = "run-external"
    """A person or an external system raised it for a run."""
    TASK_EXTERNAL = "task-external"
    """A person or an external system raised it for a task."""
    SELECTION = "selection"
    """Not an exception: a late-bound task asks which worklet to run."""

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
"""Those that block a run or a task until they are answered."""
RAISED = frozenset({ExceptionType.RUN_EXTERNAL, ExceptionType.TASK_EXTERNAL})
"""Those that people raise."""
EXECUTING = frozenset({ExceptionType.ABORT, ExceptionType.CONSTRAINT_VIOLATION, ExceptionType.TASK_EXTERNAL})
"""Those whose task has begun to execute and can be restarted."""
