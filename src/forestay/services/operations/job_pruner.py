"""Removes jobs that ended long ago, what is stored beside them, and pilots that are gone.

Whatever may still be requested is kept, however old it is: jobs that have not ended, jobs of runs that have not, completions that a submitter has yet to
get. Everything else is removed by the other parts of `services.operations.store_pruner`; the files that jobs made are the operator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.jobs.job_document import FINAL, JobDocument
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.flows.external_events import KEPT_EVENTS
from forestay.services.flows.flow_jobs import document_of
from forestay.services.flows.questions import CLOSED as CLOSED_QUESTION
from forestay.services.flows.result_reuse import forget_results
from forestay.services.flows.run_liveness import RunLiveness
from forestay.services.jobs.store_marks import JOBS, mark_pruned
from forestay.services.operations.browser_sessions import KIND as LOGIN
from forestay.services.operations.retention import BULK, DAY
from forestay.services.pilots.pilot_enrolment import KIND as ENROLMENT
from forestay.services.shared.quarantine import Quarantine

EVERY = 3600.0
"""Seconds between two passes of a reconciler."""
EXPIRING = (LOGIN, ENROLMENT, CLOSED_QUESTION, KEPT_EVENTS)
"""Kinds of documents with an expiry after which nobody can use them."""


PASSING = ("alert", "order")
"""Kinds of records that are not needed once they are old, whatever job or pilot they concern."""


class Pruned(NamedTuple):
    """The result of pruning the jobs that were old enough."""

    removed: int
    needed: int
    """Jobs that may still be requested, and were kept."""


@dataclass(slots=True)
class JobPruner:
    """The service; the command `forestay prune` uses it too."""

    store: JobStore
    documents: DocumentStore
    pilots: PilotStore
    clock: Clock
    engine: FlowEngine | None = None
    """Knows whether runs have ended; None: nothing of any run is removed."""
    troubled: Callable[[str], None] = lambda _text: None
    removed: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def prune(
        self,
        before: int,
        *,
        dry_run: bool = False,
        pause: float = 0.0,
        on_progress: Callable[[Pruned], None] = lambda _so_far: None,
    ) -> Pruned:
        """Remove what ended, and was last written, before `before` (milliseconds since 1970). `Transient`: the rest remains for another time."""
        runs = RunLiveness(self.engine, self.store, self.documents) if self.engine is not None else None
        so_far, cursor, marked = Pruned(0, 0), None, False
        query = JobQuery(states=FINAL, at_most={"changed": before})
        while True:
            began = self.clock.monotonic()
            page = await self.store.search(query, sort="changed", limit=BULK, cursor=cursor)
            old = list[Stored]()

            async def look_at(stored: Stored, old: list[Stored] = old) -> None:
                if not await _needed(stored.document, runs):
                    old.append(stored)

            later = await self.quarantine.each(
                page.jobs, look_at, name=lambda stored: f"job {stored.document.id}", troubled=self.troubled
            )
            if later is not None:
                raise later
            gone = len(old)
            if old and not dry_run:
                if not marked:
                    # The mark comes first: a later request for one of them must learn that it existed.
                    await mark_pruned(self.documents, JOBS, before)
                    marked = True
                # By the versions found: a job that was written since is kept, however old the search was.
                gone = await self.store.remove(old)
                self.removed += gone
                await self._drop_records_of_runs(old, before)
                await forget_results(self.documents, [stored.document for stored in old])
            so_far = Pruned(so_far.removed + gone, so_far.needed + len(page.jobs) - len(old))
            on_progress(so_far)
            cursor = page.cursor
            if cursor is None:
                break
            await asyncio.sleep(pause * (self.clock.monotonic() - began))

        if not dry_run:
            await self.store.drop_records(before, kinds=PASSING)
            await self.pilots.drop_gone(before)
        return so_far

    async def _drop_records_of_runs(self, jobs: Sequence[Stored], before: int) -> None:
        """Remove the delivery and other records of runs that have ended."""
        refs = {stored.document.flow_ref for stored in jobs if stored.document.flow_ref is not None}
        if refs:
            names = [document_of(flow_ref.run, flow_ref.work, flow_ref.shard) for flow_ref in refs]
            await self.documents.remove(list((await self.documents.get(names)).values()))
            await self.store.drop_records(before, jobs=sorted({flow_ref.run for flow_ref in refs}))

    async def drop_expired(self) -> int:
        """Remove the secrets of log-in links and enrolments that expired a day ago; returns how many."""
        removed = 0
        for kind in EXPIRING:
            found = await self.documents.find(kind)
            old = [stored for stored in found if int(str(stored.document.body["expires"])) < self.clock.now() - DAY]
            for start in range(0, len(old), BULK):
                removed += await self.documents.remove(old[start : start + BULK])
        return removed


async def _needed(document: JobDocument, runs: RunLiveness | None) -> bool:
    """Whether a job may still be requested."""
    if document.delivery is not None and document.delivery.due is not None:
        return True
    if document.flow_ref is None:
        return False
    return runs is None or not await runs.over(document.flow_ref.run, document.tenant, document.changed)
