"""Removes incidents that were closed long ago, with their decisions and steps.

Rules are replayed over incidents, so their period is long, and the mark that is written before the first removal lets every replay report from when on it is complete.
Kept whatever their age: incidents that are not closed; those whose job or run is not over; those for which a rule was written (its reference incident),
in whatever version of a rule set, since any can be restored; and those whose cause a person corrected, against which new patterns are tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.causes.taught_pattern import TaughtPack
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED, OWN_ENGINE
from forestay.domain.jobs.job_document import FINAL
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore, StoredIncidentStatus
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.detect.taught_patterns import KIND as TAUGHT
from forestay.services.exceptions.engines.engine_commands import ENDED_KIND, RUN_KIND
from forestay.services.flows.run_liveness import RunLiveness
from forestay.services.jobs.store_marks import INCIDENTS, mark_pruned
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.retention import BULK
from forestay.services.rules.rule_store import REFERENCE_INCIDENT
from forestay.services.shared.quarantine import Quarantine


@dataclass(slots=True)
class IncidentPruner:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    documents: DocumentStore
    clock: Clock
    engine: FlowEngine | None = None
    """Knows whether runs have ended; None: incidents of our own runs are kept."""
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)

    async def prune(self, before: int, pause: BatchPause) -> int:
        """Remove incidents that happened and were closed before then (milliseconds since 1970); returns how many."""
        kept = await self._referred()
        runs = RunLiveness(self.engine, self.store, self.documents) if self.engine is not None else None
        removed, marked = 0, False
        # Each kind and state alone is one range of an index; together they would be a scan of all incidents.
        for kind in ExceptionType:
            for state in sorted(CLOSED):
                query, cursor = IncidentQuery(kind=kind.value, states=frozenset({state}), until=before), None
                while True:
                    page = await self.incidents.find(query, sort="at", limit=BULK, cursor=cursor)
                    closed = [
                        stored
                        for stored in page.statuses
                        if stored.status.changed < before and stored.status.id not in kept
                    ]
                    old = await self._over(closed, runs)
                    if old:
                        if not marked:
                            # The mark comes first: a replay must not report as complete what is being removed.
                            await mark_pruned(self.documents, INCIDENTS, before)
                            marked = True
                        removed += await self.incidents.remove(old)
                    cursor = page.cursor
                    if cursor is None:
                        break
                    await pause.rest()
        return removed

    async def _referred(self) -> frozenset[str]:
        """The incidents that rules and corrections name."""
        names = {str(stored.document.body["id"]) for stored in await self.documents.find(REFERENCE_INCIDENT)}
        for stored in await self.documents.find(TAUGHT):
            names |= {correction.incident for correction in TaughtPack.from_dict(stored.document.body).corrected}
        return frozenset(names)

    async def _over(
        self, statuses: Sequence[StoredIncidentStatus], runs: RunLiveness | None
    ) -> list[StoredIncidentStatus]:
        """Those whose jobs and runs are over."""
        jobs = await self.store.get(sorted({stored.status.job for stored in statuses if stored.status.job}))
        waiting = {name for name, stored in jobs.items() if stored.document.state not in FINAL}
        names = {f"{RUN_KIND}:{stored.status.run}" for stored in statuses if stored.status.run}
        foreign = await self.documents.get(sorted(names)) if names else {}
        old: list[StoredIncidentStatus] = []

        async def look_at(stored: StoredIncidentStatus) -> None:
            status = stored.status
            if status.job in waiting:
                return
            if status.run:
                engine_run = foreign.get(f"{RUN_KIND}:{status.run}")
                if engine_run is not None:
                    if engine_run.document.kind != ENDED_KIND:
                        return
                elif not await self._own_run_is_over(stored, runs):
                    return
            old.append(stored)

        later = await self.quarantine.each(
            statuses, look_at, name=lambda stored: f"incident {stored.status.id}", troubled=self.troubled
        )
        if later is not None:
            raise later
        return old

    async def _own_run_is_over(self, stored: StoredIncidentStatus, runs: RunLiveness | None) -> bool:
        status = stored.status
        incident = (await self.incidents.get_incidents([status.id])).get(status.id)
        if incident is None or incident.engine != OWN_ENGINE:
            return True  # a run of another engine that was removed, or what a removal that broke off has left
        return runs is not None and await runs.over(status.run, status.tenant, status.changed)
