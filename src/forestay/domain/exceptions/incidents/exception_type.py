"""The typed events that rules may answer: the ten exception types of paper P1, and the selection of a worklet.

A rule set has at most one tree set for each of the eleven. The tree set of a case-level type has exactly one tree; that of an
item-level type has one tree for each task that has rules.
"""

from __future__ import annotations

from enum import StrEnum


class ExceptionType(StrEnum):
    """What kind of event happened; the value is its name in documents, in the interface and on the command line."""

    CASE_PRE = "case-pre"
    """A case begins: may it?"""
    CASE_POST = "case-post"
    """A case is complete: is what it left behind as it should be?"""
    ITEM_PRE = "item-pre"
    """A work item is enabled: may it start?"""
    ITEM_POST = "item-post"
    """A work item is complete: is its result as it should be?"""
    ABORT = "abort"
    """An attempt at a work item's job did not end well."""
    TIMEOUT = "timeout"
    """A work item missed its deadline; the rules see the items that run in parallel to it too."""
    RESOURCE_UNAVAILABLE = "resource-unavailable"
    """Nothing can take a work item's job: no pilot fits, no site is open, no space is left."""
    CONSTRAINT_VIOLATION = "constraint-violation"
    """Something that must hold while a work item executes does not hold any more."""
    CASE_EXTERNAL = "case-external"
    """A person, or a system outside, raised it for a case."""
    ITEM_EXTERNAL = "item-external"
    """A person, or a system outside, raised it for a work item."""
    SELECTION = "selection"
    """No exception: a task that is bound late asks which worklet to run."""

    @property
    def of_case(self) -> bool:
        """Whether it concerns a case as a whole; otherwise it concerns one work item."""
        return self in CASE_LEVEL


CASE_LEVEL = frozenset({ExceptionType.CASE_PRE, ExceptionType.CASE_POST, ExceptionType.CASE_EXTERNAL})
ITEM_LEVEL = frozenset(ExceptionType) - CASE_LEVEL
EXCEPTIONS = frozenset(ExceptionType) - {ExceptionType.SELECTION}
"""The ten of the paper."""
CONSTRAINTS = frozenset(
    {ExceptionType.CASE_PRE, ExceptionType.CASE_POST, ExceptionType.ITEM_PRE, ExceptionType.ITEM_POST}
)
"""Those for which a case or an item waits until they are answered."""
RAISED = frozenset({ExceptionType.CASE_EXTERNAL, ExceptionType.ITEM_EXTERNAL})
"""Those that people raise."""
EXECUTING = frozenset({ExceptionType.ABORT, ExceptionType.CONSTRAINT_VIOLATION, ExceptionType.ITEM_EXTERNAL})
"""Those whose work item has begun to execute, so that it can be restarted."""
