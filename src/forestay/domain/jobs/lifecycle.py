"""The lifecycle of a job: one table of transitions, the only function that applies them, and the job's story, which describes each in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    """Its inputs are staged, and its pilot starts it; reported only for jobs that have inputs."""
    COMPLETE = "complete"
    """The pilot reported success and the outputs are committed."""
    FAILURE = "failure"
    RETRY = "retry"
    GIVE_UP = "give-up"
    """No attempt is left, and the job fails by its policy."""
    RELEASE = "release"
    """The claim was released: the pilot is dead or silent, or returned the job."""
    QUARANTINE = "quarantine"
    """Released so often that the job itself is suspected; it waits for a person."""
    REUSE = "reuse"
    """The result of an earlier job with the same key is used for this one; nothing is run."""
    ADOPT = "adopt"
    """A released claim succeeded after all and nobody has claimed the job since."""
    KEEP_COMPLETION = "keep-completion"
    """The job is held, so its end is kept and not yet applied."""
    CANCEL = "cancel"
    HOLD = "hold"
    CONTINUE = "continue"
    FORCE_COMPLETE = "force-complete"
    FORCE_FAIL = "force-fail"
    RESTORE = "restore"
    """The store was restored from a backup: later changes are unknown, and the generation is raised."""
    REMAKE = "remake"
    """Its outputs were lost, and another job makes them again; the job itself stays as it is."""
    NOTIFY = "notify"
    """The notification of the end was accepted, or is postponed."""


_A, _R, _F = State.AVAILABLE, State.RUNNING, State.FAULTED

TRANSITIONS: dict[tuple[State, Event], State] = {
    (_A, Event.CLAIM): _R,
    (_A, Event.REUSE): State.COMPLETED,
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
    (State.COMPLETED, Event.REMAKE): State.COMPLETED,
    **{(state, Event.NOTIFY): state for state in FINAL},
}


class ForbiddenTransition(Exception):
    """A bug: the table has no such transition. Carries the job's story, so that the report is self-explanatory."""

    def __init__(self, document: JobDocument, event: Event) -> None:
        super().__init__(f"job {document.id}: no {event} from {document.state}; story: {document.history}")
        self.document = document
        self.event = event


@dataclass(frozen=True, slots=True)
class TransitionRefused:
    """The request does not fit the job's state; nothing was changed."""

    reason: str


def allowed(document: JobDocument, event: Event) -> bool:
    """Whether the table has the transition and this writer may write the document."""
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


KEEP = 24
"""The number of lines kept in the document; a longer story is moved, oldest first, to create-only chapters."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """The older lines of a story, moved off the document so that it stays small."""

    job: str
    first: int
    lines: tuple[Transition, ...]


def fold(document: JobDocument) -> tuple[JobDocument, Chapter | None]:
    """Move the older half of a long story to a chapter, which must be stored before the document is."""
    if len(document.history) <= KEEP:
        return document, None
    old, kept = document.history[: -KEEP // 2], document.history[-KEEP // 2 :]
    return document.having(history=kept), Chapter(document.id, old[0].rev, old)


def whole_story(document: JobDocument, chapters: Iterable[Chapter]) -> tuple[Transition, ...]:
    """All lines in order. If a chapter was stored but its document was not, the document takes precedence."""
    lines = {line.rev: line for chapter in sorted(chapters, key=lambda c: c.first) for line in chapter.lines}
    first = document.history[0].rev if document.history else 0
    lines = {rev: line for rev, line in lines.items() if rev < first}
    lines |= {line.rev: line for line in document.history}
    return tuple(lines[rev] for rev in sorted(lines))


_WORDS: dict[str, str] = {
    Event.CREATE: "{by} submitted the job. {note}",
    Event.CLAIM: "Pilot {by} claimed it for attempt {attempt} {note}.",
    Event.BEGIN: "The inputs of attempt {attempt} were staged, and it started.",
    Event.COMPLETE: "Attempt {attempt} succeeded; its outputs were committed.",
    Event.FAILURE: "Attempt {attempt} failed: {note}.",
    Event.RETRY: "Retrying ({by}): {note}.",
    Event.GIVE_UP: "Failed permanently ({by}): {note}.",
    Event.RELEASE: "{by} released the claim of attempt {attempt}: {note}.",
    Event.QUARANTINE: "{by} released the claim of attempt {attempt} and held the job for a person: {note}.",
    Event.REUSE: "The result of {note} was reused; nothing was run.",
    Event.ADOPT: "Attempt {attempt} was given up but succeeded; nobody had claimed the job since, so its outputs were committed.",
    Event.KEEP_COMPLETION: "Attempt {attempt} finished while the job is held; its completion is kept ({note}).",
    Event.CANCEL: "{by} cancelled it. {note}",
    Event.HOLD: "{by} held it: {note}.",
    Event.CONTINUE: "{by} continued it ({note}).",
    Event.FORCE_COMPLETE: "{by} marked it as complete: {note}.",
    Event.FORCE_FAIL: "{by} marked it as failed: {note}.",
    Event.RESTORE: "{by} restored the store from a backup; later work may be repeated: {note}.",
    Event.REMAKE: "Its outputs were lost; {note} makes them again ({by}).",
    Event.NOTIFY: "The callback was sent: {note}.",
}


_CLAIM = re.compile(r";? ?claim [0-9a-f]{32} ?")


def words(line: Transition) -> str:
    """One line of the story as a sentence; ids of claims are only in the line itself."""
    template = _WORDS.get(line.event)
    note = _CLAIM.sub("", line.note)
    if template is None:  # written by a newer release
        return f"{line.event} by {line.by}: {note}"
    returned_template = template.format(by=line.by, attempt=line.attempt, note=note)
    return returned_template.replace(": .", ".").replace(" ()", "").strip()
