"""Writes job documents by the claim protocol: only an acknowledged version-checked write counts.

A conflict, a timeout or a reset proves nothing: the write may have taken place, or may yet. So the document is read again.
If it carries the proposed change, a confirming write is made, and only its acknowledgement counts. If not, a retryable
write is decided anew on the document read; a claim is not: its id is dropped and never used again. A read
proves nothing either: where a refusal would cost finished work, it too waits for an acknowledged confirming write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import JobDocument, Transition
from forestay.domain.jobs.lifecycle import Chapter, TransitionRefused, fold
from forestay.ports.errors import Transient, Unreadable
from forestay.ports.jobs.job_store import Conflicted, DocumentChange, JobStore, Record, Stored, Written

TRIES = 5


@dataclass(frozen=True, slots=True)
class ProposedWrite:
    """One requested change of one job."""

    job: str
    decide: Callable[[JobDocument], JobDocument | TransitionRefused]
    """The new document, or a refusal; called again on later reads, so it must depend only on its argument."""
    already_applied: Callable[[JobDocument], bool]
    """Whether a document carries this change already."""
    known: Stored | None = None
    """The caller's copy of the document; saves a read, and may be stale."""
    no_retry: bool = False
    """Decide on the known document only: a claim that was lost is lost."""
    confirm_refusal: Callable[[JobDocument], bool] = lambda _document: False
    """Whether a refusal on that document counts only once a confirming write has proven the document. For writes
    whose refusal costs finished work: a read may be old, or about to be rolled back."""


@dataclass(frozen=True, slots=True)
class WriteApplied:
    """The store has acknowledged the write: this is the stored document."""

    stored: Stored


@dataclass(frozen=True, slots=True)
class JobMissing:
    """There is no such job."""


@dataclass(frozen=True, slots=True)
class WriteUnsettled:
    """The store gave no clear answer to repeated requests: the change may or may not have been written."""

    detail: str


Answer = WriteApplied | TransitionRefused | JobMissing | WriteUnsettled


class Writer(Protocol):
    """Carries out proposed writes; the simulation has a naive writer to compare with."""

    async def write(self, writes: Sequence[ProposedWrite]) -> Sequence[Answer]: ...


@dataclass(slots=True)
class WriteTally:
    """Counters of the writer, for metrics and benchmarks."""

    written: int = 0
    conflicts: int = 0
    unknown: int = 0
    confirmed: int = 0


@dataclass(slots=True)
class _WriteTry:
    proposed: ProposedWrite
    stored: Stored | None
    answer: Answer | None = None
    fresh: bool = False
    """Whether the stored document was read after the last write."""
    refusal: TransitionRefused | None = None
    """The answer if the confirming write in progress is acknowledged."""
    detail: str = ""


class WriteListener(Protocol):
    """Notified of documents that a process writes."""

    label: ClassVar[str] = ""
    """The listener gets only jobs with this label; empty: all."""
    part: ClassVar[str] = ""
    """The listener gets only documents in which this field is set, their own or one of their extra fields; empty: all."""

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process; must not raise or wait."""


@dataclass(slots=True)
class CheckedWriter:
    """The writer that every service uses."""

    store: JobStore
    listeners: list[WriteListener] = field(default_factory=list)
    """Called with acknowledged documents, at once."""
    tally: WriteTally = field(default_factory=WriteTally)

    async def write(self, writes: Sequence[ProposedWrite]) -> Sequence[Answer]:
        """Carry out the writes together; returns one answer for each, in order. They must name different jobs."""
        tries = [_WriteTry(proposed, proposed.known) for proposed in writes]
        for _ in range(TRIES):
            open_tries = [write_try for write_try in tries if write_try.answer is None]
            if not open_tries:
                break
            if await self._read([write_try for write_try in open_tries if write_try.stored is None]):
                await self._write(
                    [write_try for write_try in open_tries if write_try.answer is None and write_try.stored is not None]
                )
        return [write_try.answer or WriteUnsettled(write_try.detail) for write_try in tries]

    async def _read(self, tries: Sequence[_WriteTry]) -> bool:
        if not tries:
            return True
        try:
            stored_jobs = await self.store.get([write_try.proposed.job for write_try in tries])
        except Unreadable as error:
            # The outcome of these is unknown; the others are written in any case.
            for write_try in tries:
                if write_try.proposed.job in error.names:
                    write_try.answer = WriteUnsettled(str(error))
            return await self._read([write_try for write_try in tries if write_try.answer is None])
        except Transient as error:
            for write_try in tries:
                write_try.detail = str(error)
            return False
        for write_try in tries:
            write_try.stored, write_try.fresh = stored_jobs.get(write_try.proposed.job), True
            if write_try.stored is None:
                write_try.answer = JobMissing()
        return True

    async def _write(self, tries: Sequence[_WriteTry]) -> None:
        changes: list[DocumentChange] = []
        writing: list[_WriteTry] = []
        chapters: list[Record] = []
        confirming: set[int] = set()
        for write_try in tries:
            assert write_try.stored is not None  # noqa: S101 - the caller asked for these alone
            document = write_try.stored.document
            write_try.refusal = None
            if write_try.fresh and write_try.proposed.already_applied(document):
                confirming.add(len(changes))
                next_document: JobDocument | TransitionRefused = confirm(document)
            elif write_try.fresh and write_try.proposed.no_retry:
                write_try.answer = TransitionRefused("somebody else's write took effect")
                continue
            else:
                next_document = write_try.proposed.decide(document)
            if isinstance(next_document, TransitionRefused):
                if not write_try.proposed.confirm_refusal(document):
                    write_try.answer = next_document
                    continue
                write_try.refusal, next_document = next_document, confirm(document)
            if next_document is document:
                write_try.answer = WriteApplied(write_try.stored)
                continue
            next_document, chapter = fold(next_document)
            if chapter is not None:
                chapters.append(_chapter_record(next_document, chapter))
            changes.append(DocumentChange(next_document, write_try.stored.version))
            writing.append(write_try)
        if chapters:
            try:
                await self.store.add_records(chapters)
            except Transient as error:
                for write_try in writing:
                    write_try.detail = str(error)
                return
        if not changes:
            return
        results = await self.store.write(changes)
        for place, (write_try, change, result) in enumerate(zip(writing, changes, results, strict=True)):
            if isinstance(result, Written):
                self.tally.written += 1
                self.tally.confirmed += place in confirming
                stored = Stored(change.document, result.version)
                write_try.answer = write_try.refusal or WriteApplied(stored)
                for listener in self.listeners:
                    if concerns(listener, stored.document):
                        listener.notice(stored)
                continue
            if isinstance(result, Conflicted):
                self.tally.conflicts += 1
            else:
                self.tally.unknown += 1
            write_try.stored, write_try.detail = None, result.detail


def concerns(listener: WriteListener, document: JobDocument) -> bool:
    """Whether a listener gets a document."""
    if listener.label and listener.label not in document.labels:
        return False
    name = listener.part
    return not name or getattr(document, name, None) is not None or name in document.extra


def _chapter_record(document: JobDocument, chapter: Chapter) -> Record:
    """The record of a chapter. Its id names the lines, so that a repeat of the same fold is the same record."""
    return Record(
        id=f"{document.id}:chapter:{chapter.first}:{chapter.lines[-1].rev}:{chapter.lines[-1].at}",
        tenant=document.tenant,
        kind="chapter",
        job=document.id,
        at=chapter.lines[0].at,
        body={"first": chapter.first, "lines": [list(line) for line in chapter.lines]},
    )


def chapter_of(record: Record) -> Chapter:
    """Read a chapter back."""
    lines = record.body["lines"]
    assert isinstance(lines, list)  # noqa: S101 - we wrote it
    first = record.body["first"]
    assert isinstance(first, int)  # noqa: S101
    return Chapter(record.job, first, tuple(Transition(*line) for line in lines))
