"""What people decided about an error: assigned, snoozed, resolved.

An error is all failures of one fingerprint. What is said of it is one small document; whether it has come back since is seen from its failures, and is stored nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

DAY = 86_400_000
LONGEST_SNOOZE = 90 * DAY


class TriageAct(StrEnum):
    """What a person can do with an error."""

    ACKNOWLEDGE = "acknowledge"
    """Somebody has seen it."""
    ASSIGN = "assign"
    """Somebody has it; nobody named: nobody has it any more."""
    SNOOZE = "snooze"
    """It may wait until then."""
    RESOLVE = "resolve"
    """It is fixed: the next failure of this error is a regression."""
    REOPEN = "reopen"
    """As if nobody had said anything, except who has it."""


class ErrorState(StrEnum):
    """The triage state of an error."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


QUIET = frozenset({ErrorState.SNOOZED, ErrorState.RESOLVED})
"""States in which an error is shown to who asks, and nobody is told of it."""


@dataclass(frozen=True, slots=True)
class ErrorTriage:
    """The last triage action, and the assignee. Times are milliseconds since 1970."""

    state: ErrorState = ErrorState.NEW
    """As it was said; `state_at` tells where it stands."""
    assignee: str = ""
    until: int = 0
    """Until when it may wait, if it is snoozed."""
    at: int = 0
    """Since when."""
    by: str = ""
    """Who said the last thing, and why."""
    why: str = ""

    def state_at(self, now: int, last_seen: int) -> ErrorState:
        """Where an error stands whose last failure happened then."""
        if self.state is ErrorState.RESOLVED and last_seen > self.at:
            return ErrorState.REGRESSED
        if self.state is ErrorState.SNOOZED and now >= self.until:
            return ErrorState.ACKNOWLEDGED
        return self.state

    def after(self, act: TriageAct, *, by: str, at: int, why: str, assignee: str = "", until: int = 0) -> ErrorTriage:
        """What is known after a person has said something."""
        after = replace(self, by=by, why=why)
        match act:
            case TriageAct.ASSIGN if assignee and self.state is ErrorState.NEW:
                # Who takes a new error has seen it.
                return replace(after, assignee=assignee, state=ErrorState.ACKNOWLEDGED, at=at)
            case TriageAct.ASSIGN:
                return replace(after, assignee=assignee)
            case TriageAct.SNOOZE:
                return replace(after, state=ErrorState.SNOOZED, at=at, until=until)
        return replace(after, state=_STATES[act], at=at, until=0)


_STATES = {
    TriageAct.ACKNOWLEDGE: ErrorState.ACKNOWLEDGED,
    TriageAct.RESOLVE: ErrorState.RESOLVED,
    TriageAct.REOPEN: ErrorState.NEW,
}
