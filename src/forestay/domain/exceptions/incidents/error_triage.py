"""What people decided about an error: assigned, snoozed, resolved.

An error is all failures of one fingerprint. Its triage is one small document; whether it has come back since is derived from its failures and not stored.
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
    """It is assigned to a person; without a name it is unassigned."""
    SNOOZE = "snooze"
    """It may wait until then."""
    RESOLVE = "resolve"
    """It is fixed: the next failure of this error is a regression."""
    REOPEN = "reopen"
    """The triage is reset, except the assignee."""


class ErrorState(StrEnum):
    """The triage state of an error."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    SNOOZED = "snoozed"
    RESOLVED = "resolved"
    REGRESSED = "regressed"


QUIET = frozenset({ErrorState.SNOOZED, ErrorState.RESOLVED})
"""States in which an error is shown on request, without notifications."""


@dataclass(frozen=True, slots=True)
class ErrorTriage:
    """The last triage action, and the assignee. Times are milliseconds since 1970."""

    state: ErrorState = ErrorState.NEW
    """As last set; `state_at` gives the present state."""
    assignee: str = ""
    until: int = 0
    """When the snooze ends."""
    at: int = 0
    """When the state was set."""
    by: str = ""
    """Who did the last action, and why."""
    why: str = ""

    def state_at(self, now: int, last_seen: int) -> ErrorState:
        """The present state of an error, by the time of its last failure."""
        if self.state is ErrorState.RESOLVED and last_seen > self.at:
            return ErrorState.REGRESSED
        if self.state is ErrorState.SNOOZED and now >= self.until:
            return ErrorState.ACKNOWLEDGED
        return self.state

    def after(self, act: TriageAct, *, by: str, at: int, why: str, assignee: str = "", until: int = 0) -> ErrorTriage:
        """The triage after a person's action."""
        after = replace(self, by=by, why=why)
        match act:
            case TriageAct.ASSIGN if assignee and self.state is ErrorState.NEW:
                # Taking a new error acknowledges it.
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
