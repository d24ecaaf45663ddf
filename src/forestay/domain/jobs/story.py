"""The story of a job: every transition in order, told in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from forestay.domain.jobs.job_document import JobDocument, Transition
from forestay.domain.jobs.lifecycle import Event

KEEP = 24
"""So many lines stay on the document; a longer story is moved, oldest first, to create-only chapters."""


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
    """All lines in order. A chapter whose document write did not take place is overruled by the document."""
    lines = {line.rev: line for chapter in sorted(chapters, key=lambda c: c.first) for line in chapter.lines}
    first = document.history[0].rev if document.history else 0
    lines = {rev: line for rev, line in lines.items() if rev < first}
    lines |= {line.rev: line for line in document.history}
    return tuple(lines[rev] for rev in sorted(lines))


_WORDS: dict[str, str] = {
    Event.CREATE: "{by} submitted the job.",
    Event.CLAIM: "Pilot {by} claimed it for attempt {attempt} {note}.",
    Event.BEGIN: "The inputs of attempt {attempt} were staged, and it started.",
    Event.COMPLETE: "Attempt {attempt} succeeded; its outputs were committed.",
    Event.FAILURE: "Attempt {attempt} failed: {note}.",
    Event.RETRY: "Retrying ({by}): {note}.",
    Event.GIVE_UP: "Failed permanently ({by}): {note}.",
    Event.RELEASE: "{by} released the claim of attempt {attempt}: {note}.",
    Event.QUARANTINE: "{by} released the claim of attempt {attempt} and held the job for a person: {note}.",
    Event.ADOPT: "Attempt {attempt} was given up but succeeded; nobody had claimed the job since, so its outputs were committed.",
    Event.KEEP_COMPLETION: "Attempt {attempt} finished while the job is held; its completion is kept ({note}).",
    Event.CANCEL: "{by} cancelled it. {note}",
    Event.HOLD: "{by} held it: {note}.",
    Event.CONTINUE: "{by} continued it ({note}).",
    Event.FORCE_COMPLETE: "{by} marked it as complete: {note}.",
    Event.FORCE_FAIL: "{by} marked it as failed: {note}.",
    Event.RESTORE: "{by} restored the store from a backup; later work may be repeated: {note}.",
    Event.NOTIFY: "The callback was sent: {note}.",
}


_CLAIM = re.compile(r";? ?claim [0-9a-f]{32} ?")


def words(line: Transition) -> str:
    """One line of the story as a sentence; ids of claims are left to those who read the line itself."""
    template = _WORDS.get(line.event)
    note = _CLAIM.sub("", line.note)
    if template is None:  # written by a newer release
        return f"{line.event} by {line.by}: {note}"
    returned_template = template.format(by=line.by, attempt=line.attempt, note=note)
    return returned_template.replace(": .", ".").replace(" ()", "").strip()
