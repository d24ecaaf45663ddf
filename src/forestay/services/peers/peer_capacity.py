"""Measures what this domain offers a tenant: slots, free slots, queue length, job duration. Sent to peers, and compared with theirs.

Live pilots offer their slots, and sites those of the pilots that their agents may still submit. Only a sample of the jobs that ended last is read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.jobs.job_document import State
from forestay.domain.peers.routing import HERE, Offer
from forestay.domain.pilots.pilot import RELAY, PilotState
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.sites.site_registry import Site, SiteRegistry

FRESH = 2.0
"""Seconds for which measurements are cached."""
SAMPLE = 50
"""The number of jobs that ended last over which the average is taken."""
TURN = 60.0
"""The assumed seconds of a job where none has ended yet."""


@dataclass(slots=True)
class PeerCapacity:
    """The service."""

    jobs: JobStore
    pilots: PilotStore
    sites: SiteRegistry
    clock: Clock
    _known: dict[str, tuple[float, Offer]] = field(default_factory=dict)

    async def offer(self, tenant: str) -> Offer:
        """The present offer to one tenant; up to some seconds old."""
        known = self._known.get(tenant)
        now = self.clock.monotonic()
        if known is None or now - known[0] >= FRESH:
            known = self._known[tenant] = (now, await self._measure(tenant))
        return known[1]

    async def _measure(self, tenant: str) -> Offer:
        alive = await self.pilots.find_pilots(tenant=tenant, state=PilotState.ALIVE.value)
        alive = [pilot for pilot in alive if not pilot.drain and not pilot.site.startswith(RELAY)]
        counts = await self.jobs.count(JobQuery(tenant=tenant, held=False), by="state")
        slots = sum(pilot.slots for pilot in alive)
        cpus = [pilot.resources.cpus for pilot in alive]
        memory = [pilot.resources.memory for pilot in alive]
        gpus = [pilot.resources.gpus for pilot in alive]
        now = self.clock.now()
        to_come = 0
        for site in await self.sites.all(tenant):
            if site.overdue(now) or site.report.get("trouble"):
                continue
            there = sum(pilot.slots for pilot in alive if pilot.site == site.name)
            most, sizes = _promised(site)
            to_come += max(0, most - there)
            cpus += [size["cpus"] for size in sizes]
            memory += [size["memory"] for size in sizes]
            gpus += [size["gpus"] for size in sizes]
        running = counts.get(State.RUNNING.value, 0)
        return Offer(
            name=HERE,
            cpus=max(cpus, default=0),
            memory=max(memory, default=0),
            gpus=max(gpus, default=0),
            slots=slots + to_come,
            free=max(0, slots + to_come - running),
            queued=counts.get(State.AVAILABLE.value, 0),
            turn=await self._turn(tenant),
        )

    async def _turn(self, tenant: str) -> float:
        ended = JobQuery(tenant=tenant, states=frozenset({State.COMPLETED}))
        page = await self.jobs.search(ended, sort="-changed", limit=SAMPLE)
        walls = [last.wall for job in page.jobs if (last := job.document.last) is not None and last.wall is not None]
        return max(0.01, sum(walls) / len(walls)) if walls else TURN


def _promised(site: Site) -> tuple[int, list[Mapping[str, Any]]]:
    """The slots of all pilots that an agent may submit, and their sizes."""
    sizes_data, most = site.report.get("sizes"), site.report.get("max_pilots")
    sizes = (
        [sizes_record for sizes_record in sizes_data if isinstance(sizes_record, Mapping)]
        if isinstance(sizes_data, list)
        else []
    )
    if not sizes or not isinstance(most, int):
        return 0, []
    return most * max(int(size["slots"]) for size in sizes), sizes
