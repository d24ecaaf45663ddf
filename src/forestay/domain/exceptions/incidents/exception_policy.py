"""The default policy for an exception that no rule answers: nothing, the retry policy, a question to a person, or failure of its task.

As in paper P1, section 5, constraints and triggers without a rule are ignored. The other types tell of something that goes wrong by itself; for those
the default policy may want more, and says so by its settings. The failure of a job of ours has a policy of its own: `default_policy`.
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
    """The job is sent off again, by the default retry policy."""
    HOLD = "hold"
    """The incident waits in the inbox; what it is about goes on as it is."""
    FAIL = "fail"
    """The job fails; of a task without a job, the task."""


CHOSEN: Mapping[ExceptionType, ExceptionAction] = MappingProxyType(
    {
        ExceptionType.ABORT: ExceptionAction.HOLD,
        ExceptionType.TIMEOUT: ExceptionAction.IGNORE,
        ExceptionType.RESOURCE_UNAVAILABLE: ExceptionAction.HOLD,
        ExceptionType.CONSTRAINT_VIOLATION: ExceptionAction.IGNORE,
    }
)
"""The types for which the default policy has a choice, and what it chooses unless it is told otherwise. Of a timeout the flow itself says what it means
(``then: report`` or ``fail``); of a limit that was passed there is an alert beside it."""


@dataclass(frozen=True, slots=True)
class ExceptionPolicy:
    """The default choice for each type."""

    courses: Mapping[ExceptionType, ExceptionAction] = field(default_factory=lambda: CHOSEN)

    def course(self, kind: ExceptionType) -> ExceptionAction:
        if kind not in CHOSEN:
            return ExceptionAction.IGNORE
        return self.courses.get(kind, CHOSEN[kind])
