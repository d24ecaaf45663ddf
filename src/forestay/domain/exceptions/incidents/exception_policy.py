"""The default policy for an exception that no rule answers: nothing, the retry policy, a question to a person, or failure of its task.

As in paper P1, section 5, constraints and triggers without a rule are ignored. The other types report a problem by themselves; for those
the settings of the default policy may choose an action. The failure of one of our jobs has a policy of its own: `default_policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from forestay.domain.exceptions.incidents.exception_type import ExceptionType


class ExceptionAction(StrEnum):
    """What is done; the value is the verdict of the default decision."""

    IGNORE = "ignore"
    RETRY = "retry"
    """The job is retried by the default retry policy."""
    HOLD = "hold"
    """The incident waits in the inbox; its run or task continues."""
    FAIL = "fail"
    """The job fails; if the task has no job, the task."""


CHOSEN: Mapping[ExceptionType, ExceptionAction] = MappingProxyType(
    {
        ExceptionType.ABORT: ExceptionAction.HOLD,
        ExceptionType.TIMEOUT: ExceptionAction.IGNORE,
        ExceptionType.RESOURCE_UNAVAILABLE: ExceptionAction.HOLD,
        ExceptionType.CONSTRAINT_VIOLATION: ExceptionAction.IGNORE,
    }
)
"""The types for which the default policy has a choice, and its default. For a timeout the flow itself states the action
(``then: report`` or ``fail``); an exceeded limit raises an alert as well."""


@dataclass(frozen=True, slots=True)
class ExceptionPolicy:
    """The default choice for each type."""

    courses: Mapping[ExceptionType, ExceptionAction] = field(default_factory=lambda: CHOSEN)

    def course(self, kind: ExceptionType) -> ExceptionAction:
        if kind not in CHOSEN:
            return ExceptionAction.IGNORE
        return self.courses.get(kind, CHOSEN[kind])
