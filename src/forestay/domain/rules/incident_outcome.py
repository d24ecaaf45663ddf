"""The outcome of an incident, derived from what happened to the same job later.

Whether an answer to a failure was good is not recorded; it shows in what happened later. Therefore the incidents of a job are read from the newest to the oldest. For the newest,
the job's own document shows what followed; for each earlier one, the incident after it does. `LaterAttempts` is all that has to be kept of a job on the way: one small value.

* A later attempt succeeded: *recovered*; *by hand*, if a person retried or continued the job between this failure and the next attempt.
* It was retried and never succeeded: *again*, if the next attempt failed of the same cause, else *otherwise*.
* It was not retried: *given up*, *forced* (a person declared it done), *cancelled*, or it is still *open*.
* There is no job, or its document is gone: *unknown*.

An answer is thus judged by the end of the job, not by the next attempt alone: three tries of which the third succeeded were three good answers. Not visible are a resubmission
of a job under another id, and what people did outside Forestay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.lifecycle import Event

AMOUNTS = ("cpus", "memory", "disk", "gpus", "wall")
"""The resources of which a job can be given more."""
_TOLD = tuple(f"job.{name}" for name in AMOUNTS)
FIELDS_OF_ATTEMPT = frozenset({"job.attempt", "cause", "evidence.node", "host.name", "evidence.wall_time", *_TOLD})
"""The fields that `incident_attempt` reads."""
DEFAULT_POLICY = "default policy"
_BY_HAND = frozenset({Event.RETRY, Event.CONTINUE, Event.FORCE_COMPLETE, Event.FORCE_FAIL, Event.CANCEL})
_NO_PERSON = ("playbook:", "run:")


class OutcomeKind(StrEnum):
    """The outcome of an incident."""

    RECOVERED = "recovered"
    """A later attempt succeeded, and no person had acted on the failure."""
    BY_HAND = "by-hand"
    """A later attempt succeeded after a person had acted on the failure."""
    AGAIN = "again"
    """It was retried and failed of the same cause, and the job never succeeded."""
    OTHERWISE = "otherwise"
    """It was retried and failed of another cause, and the job never succeeded."""
    GIVEN_UP = "given-up"
    """It was not retried, and the job failed."""
    FORCED = "forced"
    """A person declared the job done."""
    CANCELLED = "cancelled"
    OPEN = "open"
    """The job has not ended."""
    UNKNOWN = "unknown"
    """There is no job, or no longer any record of it."""


JUDGED = frozenset(
    {
        OutcomeKind.RECOVERED,
        OutcomeKind.BY_HAND,
        OutcomeKind.AGAIN,
        OutcomeKind.OTHERWISE,
        OutcomeKind.GIVEN_UP,
        OutcomeKind.FORCED,
        OutcomeKind.CANCELLED,
    }
)
"""Those whose end is known."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job, as far as known from its incident or its winning end."""

    number: int
    cause: str = ""
    """Why it failed; empty: it succeeded, or the cause is unknown."""
    host: str = ""
    seconds: float = 0.0
    """How long it ran."""
    amounts: tuple[int, ...] = (0,) * len(AMOUNTS)
    """The job's resources at that time, in the order of `AMOUNTS`."""
    ok: bool = False

    @property
    def core_seconds(self) -> float:
        return self.seconds * max(1, self.amounts[0])


@dataclass(frozen=True, slots=True)
class ManualAction:
    """A person's action on a job after one of its attempts."""

    attempt: int
    event: str
    by: str


@dataclass(frozen=True, slots=True)
class LaterAttempts:
    """The later history of a job after one of its incidents: the next attempt, and how the job ended."""

    end: State | None
    """None: there is no document."""
    winner: int = 0
    """The attempt that succeeded; 0: none."""
    next: Attempt | None = None
    hands: tuple[ManualAction, ...] = ()


@dataclass(frozen=True, slots=True)
class IncidentOutcome:
    """The outcome of an incident, and the attempt that followed it."""

    came: OutcomeKind
    tried: Attempt | None = None
    """The next attempt, if there was one."""
    hands: tuple[ManualAction, ...] = ()
    """People's actions between this attempt and the next."""
    more: frozenset[str] = frozenset()
    """Which of `AMOUNTS` were larger in the next attempt."""
    other_host: bool = False
    """The next attempt ran on another host, and both are known."""


UNKNOWN = IncidentOutcome(OutcomeKind.UNKNOWN)


def job_later(document: JobDocument | None) -> LaterAttempts:
    """What followed the last incident of a job, by the job's own document."""
    if document is None:
        return LaterAttempts(None)
    winner, last = document.winner, document.last
    hands = tuple(
        ManualAction(line.attempt, line.event, line.by)
        for line in document.history
        if line.event in _BY_HAND and line.by != DEFAULT_POLICY and not line.by.startswith(_NO_PERSON)
    )
    needs = document.resources
    amounts = (needs.cpus, needs.memory, needs.disk, needs.gpus, needs.wall or 0)
    following: Attempt | None = None
    if winner is not None:
        following = Attempt(winner.token.attempt, "", winner.host, winner.wall or 0.0, amounts, ok=True)
    elif document.attempt and last is not None:
        # A later attempt without an incident: it failed, or its end is unknown.
        following = Attempt(document.attempt, "", last.host, last.wall or 0.0, amounts)
    return LaterAttempts(document.state, winner.token.attempt if winner is not None else 0, following, hands)


def incident_attempt(facts: Mapping[str, Any]) -> Attempt:
    """The attempt that an incident is about, by its fields (`context.told_by`)."""
    amounts = tuple(_whole(facts.get(name)) for name in _TOLD)
    seconds = facts.get("evidence.wall_time")
    return Attempt(
        _whole(facts.get("job.attempt")),
        str(facts.get("cause", "unknown")),
        str(facts.get("evidence.node") or facts.get("host.name") or ""),
        float(seconds) if isinstance(seconds, int | float) and seconds > 0 else 0.0,
        amounts,
    )


def earlier(later: LaterAttempts, attempt: Attempt) -> LaterAttempts:
    """The later history as seen before the incident of an attempt: that attempt comes next, unless an earlier one is known to."""
    known = later.next
    if known is not None and (attempt.number > known.number or (attempt.number == known.number and known.ok)):
        return later
    return LaterAttempts(later.end, later.winner, attempt, later.hands)


def outcome_of(attempt: Attempt, later: LaterAttempts) -> IncidentOutcome:
    """The outcome of the incident of an attempt."""
    following = later.next if later.next is not None and later.next.number > attempt.number else None
    hands = tuple(
        hand
        for hand in later.hands
        if hand.attempt >= attempt.number and (following is None or hand.attempt < following.number)
    )
    came = _came(attempt, later, following, hands)
    if following is None:
        return IncidentOutcome(came, None, hands)
    gained = zip(AMOUNTS, following.amounts, attempt.amounts, strict=True)
    more = frozenset(name for name, after, before in gained if after > before)
    elsewhere = bool(attempt.host and following.host and attempt.host != following.host)
    return IncidentOutcome(came, following, hands, more, elsewhere)


def _came(
    attempt: Attempt, later: LaterAttempts, following: Attempt | None, hands: tuple[ManualAction, ...]
) -> OutcomeKind:
    if later.end is None:
        return OutcomeKind.UNKNOWN
    if later.winner >= max(1, attempt.number):
        return OutcomeKind.BY_HAND if hands else OutcomeKind.RECOVERED
    if later.end not in FINAL:
        return OutcomeKind.OPEN
    if later.end is State.FORCED_COMPLETE:
        return OutcomeKind.FORCED
    if following is not None:
        return OutcomeKind.AGAIN if following.cause == attempt.cause else OutcomeKind.OTHERWISE
    return OutcomeKind.CANCELLED if later.end is State.CANCELLED else OutcomeKind.GIVEN_UP


def faulted_job_came(document: JobDocument | None) -> tuple[OutcomeKind, float]:
    """The outcome of a job that had a failure, by its document alone; and the core-seconds of the successful attempt, 0 without one."""
    later = job_later(document)
    if later.end is None:
        return OutcomeKind.UNKNOWN, 0.0
    if later.winner and later.next is not None:
        hands = any(hand.attempt < later.winner for hand in later.hands)
        return OutcomeKind.BY_HAND if hands else OutcomeKind.RECOVERED, later.next.core_seconds
    if later.end not in FINAL:
        return OutcomeKind.OPEN, 0.0
    ends = {State.FORCED_COMPLETE: OutcomeKind.FORCED, State.CANCELLED: OutcomeKind.CANCELLED}
    return ends.get(later.end, OutcomeKind.GIVEN_UP), 0.0


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
