"""The outcome of an incident, derived from what happened to the same job later.

Nobody writes down whether an answer to a failure was a good one; it shows in what came after. So the incidents of a job are read from the newest back to the oldest. Of the newest
the job's own document tells how it went on; of each one before, the incident after it does. `LaterAttempts` is what has to be remembered of a job on the way: one small value.

* A later attempt ended well: *recovered*; *by hand*, where a person retried the job or let it go on between this failure and the next attempt.
* It was tried again and never ended well: *again*, if the next attempt failed of the same cause, else *otherwise*.
* It was not tried again: *given up*, *forced* (a person said that it counts as done), *cancelled*, or it is still *open*.
* There is no job, or its document is gone: *unknown*.

An answer is thus judged by the end of the job, not by the next attempt alone: three tries of which the third ended well were three good answers. What is not seen: that a job
was sent anew under another id, and what people did outside Forestay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.lifecycle import Event

AMOUNTS = ("cpus", "memory", "disk", "gpus", "wall")
"""What a job can be given more of."""
_TOLD = tuple(f"job.{name}" for name in AMOUNTS)
FIELDS_OF_ATTEMPT = frozenset({"job.attempt", "cause", "evidence.node", "host.name", "evidence.wall_time", *_TOLD})
"""What `incident_attempt` reads."""
DEFAULT_POLICY = "default policy"
_BY_HAND = frozenset({Event.RETRY, Event.CONTINUE, Event.FORCE_COMPLETE, Event.FORCE_FAIL, Event.CANCEL})
_NO_PERSON = ("playbook:", "run:")


class OutcomeKind(StrEnum):
    """What came of an incident."""

    RECOVERED = "recovered"
    """A later attempt ended well, and no person had acted on the failure."""
    BY_HAND = "by-hand"
    """A later attempt ended well after a person had acted on the failure."""
    AGAIN = "again"
    """It was tried again and failed of the same cause, and the job never ended well."""
    OTHERWISE = "otherwise"
    """It was tried again and failed of another cause, and the job never ended well."""
    GIVEN_UP = "given-up"
    """It was not tried again, and the job failed."""
    FORCED = "forced"
    """Somebody said that the job counts as done."""
    CANCELLED = "cancelled"
    OPEN = "open"
    """The job has not ended."""
    UNKNOWN = "unknown"
    """There is no job, or nobody knows any more."""


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
"""Those of which the end is known."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job, as far as its incident or its winning end tells."""

    number: int
    cause: str = ""
    """Why it failed; empty: it ended well, or nobody knows."""
    host: str = ""
    seconds: float = 0.0
    """How long it ran."""
    amounts: tuple[int, ...] = (0,) * len(AMOUNTS)
    """What the job had then, in the order of `AMOUNTS`."""
    ok: bool = False

    @property
    def core_seconds(self) -> float:
        return self.seconds * max(1, self.amounts[0])


@dataclass(frozen=True, slots=True)
class ManualAction:
    """Something that a person did to a job after one of its attempts."""

    attempt: int
    event: str
    by: str


@dataclass(frozen=True, slots=True)
class LaterAttempts:
    """What is known of a job after one of its incidents: the next attempt, and how the job ended."""

    end: State | None
    """None: there is no document."""
    winner: int = 0
    """The attempt that ended well; 0: none."""
    next: Attempt | None = None
    hands: tuple[ManualAction, ...] = ()


@dataclass(frozen=True, slots=True)
class IncidentOutcome:
    """What came of an incident, and the try that followed on it."""

    came: OutcomeKind
    tried: Attempt | None = None
    """The next attempt, if there was one."""
    hands: tuple[ManualAction, ...] = ()
    """What people did between this attempt and the next."""
    more: frozenset[str] = frozenset()
    """Of what the next attempt had more, of `AMOUNTS`."""
    other_host: bool = False
    """The next attempt ran on another host, and both are known."""


UNKNOWN = IncidentOutcome(OutcomeKind.UNKNOWN)


def job_later(document: JobDocument | None) -> LaterAttempts:
    """What the job's own document tells of how it went on after its last incident."""
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
        # A later attempt of which there is no incident: it ended badly, or nobody knows how.
        following = Attempt(document.attempt, "", last.host, last.wall or 0.0, amounts)
    return LaterAttempts(document.state, winner.token.attempt if winner is not None else 0, following, hands)


def incident_attempt(facts: Mapping[str, Any]) -> Attempt:
    """The attempt that an incident is about, by the fields that it tells (`incident_context.told_by`)."""
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
    """What is known of a job before the incident of an attempt: that attempt comes next, unless an earlier one is known to."""
    known = later.next
    if known is not None and (attempt.number > known.number or (attempt.number == known.number and known.ok)):
        return later
    return LaterAttempts(later.end, later.winner, attempt, later.hands)


def outcome_of(attempt: Attempt, later: LaterAttempts) -> IncidentOutcome:
    """What came of the incident of an attempt."""
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
    """What came of a job that had a failure, told by its document alone; and the core-seconds of the run that ended well, 0 without one."""
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
