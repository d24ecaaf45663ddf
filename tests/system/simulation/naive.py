"""The protocol that everybody writes first: write once, and after an error believe what one read shows.

It fills the same port as the real writer, so the same services run on it under the same schedules; jobs are created in the same way. It
must be caught.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import TransitionRefused, fold
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Stored, Written
from forestay.services.jobs.first_claims import FirstClaims
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.shared.checked_writer import (
    Answer,
    JobMissing,
    ProposedWrite,
    WriteApplied,
    WriteListener,
    WriteUnsettled,
    _chapter_record,
    concerns,
)


@dataclass(slots=True)
class NaiveWriter:
    """Trusts one read after an error, and never confirms."""

    store: JobStore
    listeners: list[WriteListener] = field(default_factory=list)

    async def write(self, writes: Sequence[ProposedWrite]) -> Sequence[Answer]:
        return [await self._one(proposed) for proposed in writes]

    async def _one(self, proposed: ProposedWrite) -> Answer:
        try:
            stored = proposed.known or (await self.store.get([proposed.job])).get(proposed.job)
            for _ in range(2):
                if stored is None:
                    return JobMissing()
                wished = proposed.decide(stored.document)
                if isinstance(wished, TransitionRefused):
                    return wished
                wished, chapter = fold(wished)
                if chapter is not None:
                    await self.store.add_records([_chapter_record(wished, chapter)])
                (result,) = await self.store.write([DocumentChange(wished, stored.version)])
                if isinstance(result, Written):
                    return self._settled(Stored(wished, result.version))
                stored = (await self.store.get([proposed.job])).get(proposed.job)
                if stored is not None and proposed.already_applied(stored.document):
                    return self._settled(stored)
                if proposed.no_retry:
                    return TransitionRefused("somebody else's write took effect")
        except Transient as error:
            return WriteUnsettled(str(error))
        return WriteUnsettled("twice in vain")

    def _settled(self, stored: Stored) -> WriteApplied:
        for listener in self.listeners:
            if concerns(listener, stored.document):
                listener.notice(stored)
        return WriteApplied(stored)


class NaiveSubmit(JobSubmitter):
    """Takes a job for created, and its first claim for given, when one read shows it."""

    async def _settle(
        self, documents: Sequence[JobDocument], claims: FirstClaims[Any]
    ) -> dict[str, tuple[Stored, bool]]:
        settled: dict[str, tuple[Stored, bool]] = {}
        changes = [DocumentChange(claims.claimed(document), None) for document in documents]
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
