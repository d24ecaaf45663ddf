"""Raises the generation after a store was restored from a backup, while no other process of the domain runs.

The new number is recorded first, as unfinished; after an interruption the same number is used. Only then are the jobs that are not
final brought to it, each by a version-checked write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forestay.domain.jobs.job_document import FINAL, JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.restoring import HOLDER, next_generation, restored
from forestay.domain.jobs.specification import Effects
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.services.jobs.store_marks import GENERATION, generation_in
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, Writer
from forestay.services.shared.document_update import update_document

PAGE = 1000


@dataclass(slots=True)
class RaisedGeneration:
    """The result of raising the generation."""

    generation: int
    jobs: int = 0
    running: int = 0
    """Of these, jobs whose claims were released."""
    held: int = 0
    """Of these, jobs with external effects, which now wait for a person."""


@dataclass(slots=True)
class GenerationRaiser:
    """The service."""

    store: JobStore
    documents: DocumentStore
    writer: Writer
    clock: Clock

    async def run(self, *, by: str, reason: str) -> RaisedGeneration:
        """Bring every job that is not final to a new generation. `Transient`: not all are; run it again. `Permanent`: some cannot be."""
        await self.store.refresh()
        generation = await self._begin(by, reason)
        done = RaisedGeneration(generation)
        while below := await self._below(generation, done, by, reason):
            if below == await self._left(generation):
                raise Permanent(f"{below} jobs cannot be raised to generation {generation}: they need a newer release")
        await self._end(generation, by, reason)
        return done

    async def _begin(self, by: str, reason: str) -> int:
        highest = await self.store.search(JobQuery(), sort="-generation", limit=1)
        known = highest.jobs[0].document.generation if highest.jobs else 0

        def begun(stored: StoredDocument | None) -> tuple[Document | None, int]:
            status = generation_in(stored)
            if status.unfinished:
                return None, status.number
            now = self.clock.now()
            number = next_generation(max(known, status.number), now)
            return _document(number, unfinished=True, at=now, by=by, reason=reason), number

        return await update_document(
            self.documents, GENERATION, begun, unsure="the generation was not stored; run it again"
        )

    async def _end(self, generation: int, by: str, reason: str) -> None:
        def ended(_: StoredDocument | None) -> tuple[Document, None]:
            return _document(generation, unfinished=False, at=self.clock.now(), by=by, reason=reason), None

        unsure = "all jobs are done, but this could not be recorded; run it again"
        await update_document(self.documents, GENERATION, ended, unsure=unsure)

    def _query(self, generation: int) -> JobQuery:
        return JobQuery(states=frozenset(State) - FINAL, at_most={"generation": generation - 1})

    async def _left(self, generation: int) -> int:
        await self.store.refresh()
        return sum((await self.store.count(self._query(generation), by="state")).values())

    async def _below(self, generation: int, done: RaisedGeneration, by: str, reason: str) -> int:
        """Make one pass over the jobs of earlier generations; returns how many there were."""
        await self.store.refresh()
        query, cursor, count = self._query(generation), None, 0
        while True:
            page = await self.store.search(query, sort="created", limit=PAGE, cursor=cursor)
            count += len(page.jobs)
            await self._raise(page.jobs, generation, done, by, reason)
            cursor = page.cursor
            if cursor is None:
                return count

    async def _raise(
        self, jobs: Sequence[Stored], generation: int, done: RaisedGeneration, by: str, reason: str
    ) -> None:
        known = await self.store.get_specifications(sorted({job.document.specification for job in jobs}))
        external = {name for name, specification in known.items() if specification.effects is Effects.EXTERNAL}
        now = self.clock.now()

        def proposed(stored: Stored) -> ProposedWrite:
            outside = stored.document.specification in external

            def decide(document: JobDocument) -> JobDocument | TransitionRefused:
                return restored(document, generation=generation, external=outside, now=now, by=by, reason=reason)

            return ProposedWrite(stored.document.id, decide, _raised_to(generation), known=stored)

        for job, answer in zip(jobs, await self.writer.write([proposed(stored) for stored in jobs]), strict=True):
            if not isinstance(answer, WriteApplied):
                if isinstance(answer, TransitionRefused):
                    continue
                raise Transient("the store did not accept every job; run it again")
            done.jobs += 1
            done.running += job.document.claim is not None
            done.held += HOLDER in answer.stored.document.holders


def _raised_to(generation: int) -> Callable[[JobDocument], bool]:
    return lambda document: document.generation == generation


def _document(number: int, *, unfinished: bool, at: int, by: str, reason: str) -> Document:
    return Document(
        GENERATION, "", GENERATION, {"number": number, "unfinished": unfinished, "at": at, "by": by, "reason": reason}
    )
