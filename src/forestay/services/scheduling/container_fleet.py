"""Which container runtimes a tenant's pilots have, for jobs that need one.

A job whose image this pilot cannot run is left to those that can. Where no pilot reports that it can, any pilot may claim it: the job then fails at once
with that reason, instead of waiting for ever.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.jobs.container_image import may_run, wanted_runtimes
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.pilots.pilot import PilotState, carries, runtimes_of
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.scheduling.candidate_buffers import CandidateSignal
from forestay.services.scheduling.job_eligibility import ImageRunners
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.recent import Recent

FRESH = 5.0
"""Seconds for which the pilots' advertised features are cached."""
TENANTS = 1_000


@dataclass(slots=True)
class ContainerFleet(ImageRunners):
    """The service."""

    pilots: PilotStore
    clock: Clock
    signal: CandidateSignal
    _known: Recent[str, tuple[float, frozenset[str] | None]] = field(default_factory=lambda: Recent(TENANTS))
    """When each tenant's pilots were read, and all their runtimes; None: some pilot does not report its runtimes."""
    _reading: set[str] = field(default_factory=set)
    _background: BackgroundTasks = field(default_factory=BackgroundTasks)

    def leaves(self, document: JobDocument, runtimes: frozenset[str] | None) -> bool:
        """Whether a pilot with these runtimes leaves a job to others."""
        return not may_run(document.extra, runtimes) and self._someone(document.tenant, wanted_runtimes(document.extra))

    def _someone(self, tenant: str, wanted: frozenset[str]) -> bool:
        """Whether some pilot may be able to run such jobs; True until it is known."""
        at, all_runtimes = self._known.get(tenant, (-FRESH, None))
        if self.clock.monotonic() - at >= FRESH and tenant not in self._reading:
            self._reading.add(tenant)
            self._background.begin(self._read(tenant))
        return all_runtimes is None or not wanted.isdisjoint(all_runtimes)

    async def _read(self, tenant: str) -> None:
        try:
            with suppress(PortError):
                alive = await self.pilots.find_pilots(tenant=tenant, state=PilotState.ALIVE.value)
                named = [runtimes_of(pilot) for pilot in alive if carries(pilot, "")]
                known = None if None in named else frozenset(name for names in named for name in names or ())
                self._known[tenant] = self.clock.monotonic(), known
        finally:
            self._reading.discard(tenant)
            self.signal.wake()

    def stop(self) -> None:
        self._background.stop()
