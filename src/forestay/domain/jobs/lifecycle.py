"""Which state may follow which: one table, and the only function that moves a job along it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from forestay.domain.jobs.job_document import FINAL, WRITER, JobDocument, State, Transition

MAX_NOTE = 240


class Event(StrEnum):
    """What can happen to a job."""

    CREATE = "create"
    CLAIM = "claim"
    BEGIN = "begin"
    """Its inputs are there, and its pilot starts it; told only of jobs that have inputs."""
    COMPLETE = "complete"
    """The pilot's end was good and its outputs are committed."""
    FAILURE = "failure"
    RETRY = "retry"
    GIVE_UP = "give-up"
    """No attempt is left and the default policy says so."""
    RELEASE = "release"
    """The claim was taken away: pilot dead, silent, or it gave the job back."""
    QUARANTINE = "quarantine"
    """Released so often that the job itself is suspected; it waits for someone."""
    ADOPT = "adopt"
    """A released claim ended well after all and nobody has claimed the job since."""
    KEEP_COMPLETION = "keep-completion"
    """The job is held, so its end is kept and not yet applied."""
    CANCEL = "cancel"
    HOLD = "hold"
    CONTINUE = "continue"
    FORCE_COMPLETE = "force-complete"
    FORCE_FAIL = "force-fail"
    RESTORE = "restore"
    """The store was brought back from a backup: what was done since is not known, and the generation is raised."""
    NOTIFY = "notify"
    """The notification of the end was taken, or is put off."""


_A, _R, _F = State.AVAILABLE, State.RUNNING, State.FAULTED

TRANSITIONS: dict[tuple[State, Event], State] = {
    (_A, Event.CLAIM): _R,
    (_A, Event.ADOPT): State.COMPLETED,
    (_A, Event.KEEP_COMPLETION): _R,
    (_A, Event.CANCEL): State.CANCELLED,
    (_A, Event.HOLD): _A,
    (_A, Event.CONTINUE): _A,
    (_A, Event.FORCE_COMPLETE): State.FORCED_COMPLETE,
    (_A, Event.FORCE_FAIL): State.FAILED,
    (_A, Event.RESTORE): _A,
    (_R, Event.BEGIN): _R,
    (_R, Event.COMPLETE): State.COMPLETED,
    (_R, Event.FAILURE): _F,
    (_R, Event.RELEASE): _A,
    (_R, Event.QUARANTINE): _F,
    (_R, Event.KEEP_COMPLETION): _R,
    (_R, Event.CANCEL): State.CANCELLED,
    (_R, Event.HOLD): _R,
    (_R, Event.CONTINUE): _R,
    (_R, Event.FORCE_COMPLETE): State.FORCED_COMPLETE,
    (_R, Event.FORCE_FAIL): State.FAILED,
    (_R, Event.RESTORE): _A,
    (_F, Event.RETRY): _A,
    (_F, Event.GIVE_UP): State.FAILED,
    (_F, Event.ADOPT): State.COMPLETED,
    (_F, Event.KEEP_COMPLETION): _R,
    (_F, Event.CANCEL): State.CANCELLED,
    (_F, Event.HOLD): _F,
    (_F, Event.CONTINUE): _F,
    (_F, Event.FORCE_COMPLETE): State.FORCED_COMPLETE,
    (_F, Event.FORCE_FAIL): State.FAILED,
    (_F, Event.RESTORE): _F,
    **{(state, Event.NOTIFY): state for state in FINAL},
}


class ForbiddenTransition(Exception):
    """A bug: the table has no such step. Carries the job's story, so that the report explains itself."""

    def __init__(self, document: JobDocument, event: Event) -> None:
        super().__init__(f"job {document.id}: no {event} from {document.state}; story: {document.history}")
        self.document = document
        self.event = event


@dataclass(frozen=True, slots=True)
class TransitionRefused:
    """What was asked does not fit the job as it stands; nothing was changed."""

    reason: str


def allowed(document: JobDocument, event: Event) -> bool:
    """Whether the table has the step and this writer may write the document."""
    return (document.state, event) in TRANSITIONS and document.min_writer <= WRITER


def step(document: JobDocument, event: Event, *, now: int, by: str, note: str = "", **changes: Any) -> JobDocument:
    """Move a job along the table, with the change's own fields, and write the line of its story."""
    state = TRANSITIONS.get((document.state, event))
    if state is None or document.min_writer > WRITER:
        raise ForbiddenTransition(document, event)
    rev = document.rev + 1
    attempt = changes.get("attempt", document.attempt)
    line = Transition(rev, now, event.value, state.value, attempt, by, note[:MAX_NOTE])
    if state in FINAL and document.delivery is not None and "delivery" not in changes:
        changes["delivery"] = replace(document.delivery, due=now)
    return document.having(state=state, rev=rev, changed=now, history=(*document.history, line), **changes)
