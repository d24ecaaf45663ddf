"""Removes everything that is older than the domain keeps it: jobs first, then what is kept as long as they, incidents, keys, specifications and the audit log.

Each part is done whether or not another one fails; a part that could not be completed is continued the next time, since every removal can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.services.operations.audit_pruner import AuditPruner
from forestay.services.operations.batch_pause import BatchPause
from forestay.services.operations.incident_pruner import IncidentPruner
from forestay.services.operations.job_pruner import EVERY, JobPruner
from forestay.services.operations.record_pruner import RecordPruner
from forestay.services.operations.retention import Retention
from forestay.services.operations.specification_pruner import SpecificationPruner
from forestay.services.shared.polling import poll_forever

PARTS = ("expired", "jobs", "records", "incidents", "keys", "specifications", "audit")


@dataclass(slots=True)
class StorePruner:
    """The service; one a reconciler."""

    retention: Retention
    jobs: JobPruner
    records: RecordPruner
    incidents: IncidentPruner
    specifications: SpecificationPruner
    audit: AuditPruner
    clock: Clock
    every: float = EVERY
    pause: float = 1.0
    """The pause after each batch, as a multiple of its duration: the store serves others too."""
    troubled: Callable[[str], None] = lambda _text: None
    removed: Counter[str] = field(default_factory=Counter)
    """How many documents each part has removed, for metrics."""

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Remove what is older than the domain keeps."""
        for part in PARTS:
            try:
                async for removed in self._remove(part):
                    self.removed[part] += removed
            except PortError as error:
                self.troubled(f"{part}: {error}")

    async def _remove(self, part: str) -> AsyncIterator[int]:
        cutoffs, pause = self.retention.cutoffs(self.clock.now()), BatchPause(self.clock, self.pause)
        match part:
            case "expired":
                yield await self.jobs.drop_expired()
            case "jobs" if cutoffs.jobs is not None:
                yield (await self.jobs.prune(cutoffs.jobs, pause=self.pause)).removed
            case "records" if cutoffs.jobs is not None:
                yield await self.records.prune(cutoffs.jobs, pause)
            case "incidents" if cutoffs.incidents is not None:
                yield await self.incidents.prune(cutoffs.incidents, pause)
                yield await self.records.prune_beside_incidents(cutoffs.incidents)
            case "keys" if cutoffs.keys is not None:
                yield await self.records.prune_keys(cutoffs.keys, pause)
            case "specifications" if cutoffs.jobs is not None:
                yield await self.specifications.prune(cutoffs.jobs, pause)
            case "audit" if cutoffs.audit is not None:
                yield await self.audit.prune(cutoffs.audit, pause)
