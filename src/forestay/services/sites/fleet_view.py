"""Everything that runs a tenant's jobs in one view: sites, pilots and hosts, and what they do.

Reads are bounded (10,000 pilots, 1,000 hosts), and cached for a few seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import FINAL, State
from forestay.domain.pilots.pilot import Pilot
from forestay.domain.scheduling.host_health import HostHealth
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.pilots.pilot_launches import PilotLaunches
from forestay.services.scheduling.host_health_tracker import HostHealthTracker
from forestay.services.shared.coalescing_cache import CoalescingCache
from forestay.services.sites.site_registry import Site, SiteRegistry

FRESH = 3.0
"""Seconds for which a view is cached."""
MOST_PILOTS = 10_000
"""The most pilots of a tenant, those that registered last; a view says whether these are all."""
HOUR = 3_600_000
RUNNING = frozenset({State.RUNNING})


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """The fleet of a tenant as it was at one time."""

    at: int
    pilots: Sequence[Pilot]
    """Newest registered first."""
    running: Mapping[str, int]
    """Running jobs by pilot."""
    sites: Sequence[Site]
    coming: Mapping[str, int]
    """By site, pilots that were submitted to its batch system and have not registered."""
    hosts: Mapping[str, HostHealth]

    @property
    def whole(self) -> bool:
        return len(self.pilots) < MOST_PILOTS


@dataclass(slots=True)
class FleetView:
    """The service."""

    store: JobStore
    pilots: PilotStore
    sites: SiteRegistry
    launches: PilotLaunches
    hosts: HostHealthTracker
    clock: Clock
    _looks: CoalescingCache[str, FleetStatus] = field(init=False)

    def __post_init__(self) -> None:
        self._looks = CoalescingCache(self.clock, FRESH)

    async def look(self, tenant: str) -> FleetStatus:
        return await self._looks.get(tenant, lambda: self._look(tenant))

    def changed(self, tenant: str) -> None:
        """Discard the cached view after a change."""
        self._looks.forget(tenant)

    async def _look(self, tenant: str) -> FleetStatus:
        pilots = await self.pilots.find_pilots(tenant=tenant, limit=MOST_PILOTS)
        running = await self.store.count(JobQuery(tenant, RUNNING), by="pilot") if pilots else {}
        sites = await self.sites.all(tenant)
        coming = {}
        for site in sites:
            coming[site.name] = sum(not launch.pilot for launch in await self.launches.open(tenant, site.name))
        return FleetStatus(self.clock.now(), pilots, running, sites, coming, await self.hosts.all(tenant))

    async def ended_by_host(self, tenant: str) -> Mapping[str, int]:
        """Jobs that ended in the last hour, by the host of their last attempt."""
        since = {"changed": self.clock.now() - HOUR}
        return await self.store.count(JobQuery(tenant, FINAL, at_least=since), by="host")

    async def faulted_by_host(self, tenant: str) -> Mapping[str, int]:
        """Jobs whose last attempt failed and that wait for a decision, by its host."""
        return await self.store.count(JobQuery(tenant, frozenset({State.FAULTED})), by="host")
