"""Releases claims of pilots that are dead, silent, or do not know of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from forestay.domain.jobs.claim import release
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.pilots.pilot import PilotState
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, Writer

PAGE = 1000


@dataclass(slots=True)
class ClaimReleaser:
    """The service; each release is a version-checked write on one claim, so any number of processes may try."""

    store: JobStore
    pilots: PilotStore
    writer: Writer
    clock: Clock
    released: int = 0

    async def of_pilots(
        self, pilots: Sequence[str], *, by: str, reason: str, overlap_possible: bool, keep: frozenset[str] = frozenset()
    ) -> int:
        """Release every claim of these pilots that the store shows by now; returns how many."""
        held = [
            stored
            for stored in await self.held_by(pilots)
            if stored.document.claim and stored.document.claim.id not in keep
        ]
        return await self.release(held, by=by, reason=reason, overlap_possible=overlap_possible)

    async def held_by(self, pilots: Sequence[str]) -> list[Stored]:
        """The running jobs of these pilots that the store shows by now."""
        await self.store.refresh(only_jobs=True)
        query = JobQuery(states=frozenset({State.RUNNING}), anyof={"pilot": list(pilots)})
        held: list[Stored] = []
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="created", limit=PAGE, cursor=cursor)
            held += [job for job in page.jobs if job.document.claim is not None]
            cursor = page.cursor
            if cursor is None:
                return held

    async def release(
        self,
        jobs: Sequence[Stored],
        *,
        by: str,
        reason: str,
        overlap_possible: bool,
        executed: bool = True,
        suspects: Collection[str] = (),
    ) -> int:
        """Release the claims in these documents; of several documents of one job the newest counts.

        ``suspects``: the jobs that may have killed their pilot.
        """
        newest: dict[str, Stored] = {}
        for job in sorted(jobs, key=lambda stored: stored.document.token):
            if job.document.claim is not None and job.document.held_completion is None:
                newest[job.document.id] = job
        writes = [
            release_write(
                stored,
                by=by,
                reason=reason,
                overlap_possible=overlap_possible,
                now=self.clock.now(),
                executed=executed,
                died=stored.document.id in suspects,
            )
            for stored in newest.values()
        ]
        count = 0
        for start in range(0, len(writes), PAGE):
            answers = await self.writer.write(writes[start : start + PAGE])
            count += sum(isinstance(answer, WriteApplied) for answer in answers)
        self.released += count
        return count

    async def mark(self, pilot: str, state: PilotState, note: str) -> None:
        """Record a pilot's state in its own document; best effort, nothing depends on it."""
        stored = await self.pilots.get_pilot(pilot)
        if stored is not None and stored.pilot.state is not state:
            changed = replace(stored.pilot, state=state, changed=self.clock.now(), note=note)
            await self.pilots.put_pilot(changed, stored.version)


def release_write(
    stored: Stored,
    *,
    by: str,
    reason: str,
    overlap_possible: bool,
    now: int,
    executed: bool = True,
    died: bool = False,
) -> ProposedWrite:
    """The write that releases the claim in a document, and no other."""
    held = stored.document.claim
    assert held is not None  # noqa: S101 - the caller looked

    def decide(document: JobDocument) -> JobDocument | TransitionRefused:
        return release(
            document,
            claim_id=held.id,
            now=now,
            by=by,
            reason=reason,
            overlap_possible=overlap_possible,
            executed=executed,
            died=died,
        )

    def already_applied(document: JobDocument) -> bool:
        return document.claim is None and document.former_claim == held.id

    return ProposedWrite(stored.document.id, decide, already_applied, known=stored)
