"""The protocol that everybody writes first: write once, and after an error believe what one read shows.

It fills the same port as the real writer, so the same services run on it under the same schedules; jobs are created in the same way. It
must be caught.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import Refused
from forestay.domain.jobs.story import fold
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Change, JobStore, Stored, Written
from forestay.services.jobs.submit_jobs import SubmitJobs
from forestay.services.scheduling.first_claims import FirstClaims
from forestay.services.shared.write_checked import Answer, Missing, Settled, Unsettled, Wish, _chapter_record


@dataclass(slots=True)
class NaiveWriter:
    """Trusts one read after an error, and never confirms."""

    store: JobStore
    listeners: list[Callable[[Stored], None]] = field(default_factory=list)

    async def write(self, wishes: Sequence[Wish]) -> Sequence[Answer]:
        return [await self._one(wish) for wish in wishes]

    async def _one(self, wish: Wish) -> Answer:
        try:
            stored = wish.known or (await self.store.get([wish.job])).get(wish.job)
            for _ in range(2):
                if stored is None:
                    return Missing()
                wished = wish.decide(stored.document)
                if isinstance(wished, Refused):
                    return wished
                wished, chapter = fold(wished)
                if chapter is not None:
                    await self.store.add_records([_chapter_record(wished, chapter)])
                (result,) = await self.store.write([Change(wished, stored.version)])
                if isinstance(result, Written):
                    return self._settled(Stored(wished, result.version))
                stored = (await self.store.get([wish.job])).get(wish.job)
                if stored is not None and wish.mine(stored.document):
                    return self._settled(stored)
                if wish.once:
                    return Refused("someone else's write stands")
        except Transient as error:
            return Unsettled(str(error))
        return Unsettled("twice in vain")

    def _settled(self, stored: Stored) -> Settled:
        for tell in self.listeners:
            tell(stored)
        return Settled(stored)


class NaiveSubmit(SubmitJobs):
    """Takes a job for created, and its first claim for given, when one read shows it."""

    async def _settle(
        self, documents: Sequence[JobDocument], claims: FirstClaims[Any]
    ) -> dict[str, tuple[Stored, bool]]:
        settled: dict[str, tuple[Stored, bool]] = {}
        changes = [Change(claims.claimed(document), None) for document in documents]
        for change, result in zip(changes, await self.store.write(changes), strict=True):
            if isinstance(result, Written):
                settled[change.document.id] = Stored(change.document, result.version), True
        missing = [document.id for document in documents if document.id not in settled]
        if missing:
            settled |= {job: (stored, False) for job, stored in (await self.store.get(missing)).items()}
        for stored, _ in settled.values():
            claims.settled(stored)
        if len(settled) < len(documents):
            raise Transient("some jobs are not there")
        return settled
