"""Counts for monitoring the whole domain: jobs by state, open incidents by state and cause, and the longest waiting times.

The store is queried only while somebody reads the figures, and at most once in a fixed interval however many read them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.jobs.job_document import State
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobQuery, JobStore

UNCLOSED = frozenset({IncidentState.OPEN, IncidentState.ACTING, IncidentState.WAITING, IncidentState.HELD})
_NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DomainCounts:
    """The state of the domain at one time."""

    at: float
    """By the monotonic clock."""
    jobs: Mapping[str, int] = field(default_factory=dict)
    incidents: Mapping[str, int] = field(default_factory=dict)
    """Open incidents, by state."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Incidents that wait for a person, by cause."""
    oldest_available: float = 0.0
    """Seconds since the creation of the oldest claimable job; 0 without any."""
    oldest_held: float = 0.0
    """The longest time in seconds that an incident has waited for a person."""


class DomainCounter:
    """The service."""

    def __init__(
        self, store: JobStore, incidents: IncidentStore, clock: Clock, *, every: float = 15.0, unread: float = 120.0
    ) -> None:
        self.store = store
        self.incidents = incidents
        self.clock = clock
        self.every = every
        self.unread = unread
        self.latest: DomainCounts | None = None
        """The last counts; None before the first time, and when they are too old to be shown."""
        self._asked = asyncio.Event()
        self._read_at = clock.monotonic()

    def read(self) -> DomainCounts | None:
        """The last counts, if they are not old; also requests further counting."""
        self._read_at = self.clock.monotonic()
        self._asked.set()
        if self.latest is not None and self._read_at - self.latest.at > 4 * self.every:
            self.latest = None  # an old figure would look like a present one
        return self.latest

    async def run(self) -> None:
        """Count while the figures are read, until cancelled."""
        while True:
            if self.clock.monotonic() - self._read_at > self.unread:
                self._asked.clear()
                await self._asked.wait()
            with suppress(PortError):  # the figures become too old, and then nothing is shown
                self.latest = await self.count()
            await asyncio.sleep(self.every)

    async def count(self) -> DomainCounts:
        jobs = await self.store.count(JobQuery(), by="state")
        unclosed = await self.incidents.count(IncidentQuery(states=UNCLOSED), by="state")
        waiting = IncidentQuery(states=frozenset({IncidentState.HELD}))
        held = await self.incidents.count(waiting, by="cause") if unclosed.get(IncidentState.HELD.value) else _NONE
        now = self.clock.now()
        oldest_available = oldest_held = 0.0
        if jobs.get(State.AVAILABLE.value):
            free = JobQuery(states=frozenset({State.AVAILABLE}), held=False, at_most={"not_before": now})
            page = await self.store.search(free, sort="created", limit=1)
            oldest_available = max((now - job.document.created for job in page.jobs), default=0) / 1000
        if held:
            incident_page = await self.incidents.find(waiting, sort="at", limit=1)
            oldest_held = max((now - stored.status.at for stored in incident_page.statuses), default=0) / 1000
        return DomainCounts(self.clock.monotonic(), jobs, unclosed, held, oldest_available, oldest_held)
