"""Removes specifications that nobody has used for long.

Specifications are shared by content, so that none belongs to one job. Whoever submits jobs notes the use of their specifications, at least once in
`USE_NOTED`, before the jobs are written (`services.jobs.job_submitter`). One is removed if its last note is old and no job names it, and only if that
note is still the last: of a submitter and a removal at the same time, either the note is first and the removal does not take place, or the submitter stores it
anew. Jobs are looked for after the note was read, and notes are days older than any memory of a submitter, so that none relies on a note that old.
"""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore, SpecificationUse
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.retention import BULK, DAY

LEAST_DAYS = 7
"""The least age of the last use: much more than the six hours for which submitters rely on a note, and than any difference of clocks."""


@dataclass(slots=True)
class SpecificationPruner:
    """The service."""

    store: JobStore
    clock: Clock

    async def prune(self, before: int, pause: BatchPause) -> int:
        """Remove those last used before then (milliseconds since 1970), and of which there is no job; returns how many."""
        now = self.clock.now()
        before = min(before, now - LEAST_DAYS * DAY)
        removed = 0
        while uses := await self.store.unused_specifications(before, limit=BULK):
            named = await self.store.count(
                JobQuery(anyof={"specification": [use.id for use in uses]}), by="specification"
            )
            unused = [use for use in uses if use.used and use.id not in named]
            # One that a job names is looked at again when its period is over once more, and so is one without a note.
            noted = await self._note([use for use in uses if use not in unused], now)
            gone = await self.store.remove_specifications(unused)
            removed += gone
            if not gone and not noted:
                break  # every one of them is being used at this moment
            await self.store.refresh()
            await pause.rest()
        return removed

    async def _note(self, uses: list[SpecificationUse], now: int) -> int:
        return await self.store.note_use(uses, now) if uses else 0
