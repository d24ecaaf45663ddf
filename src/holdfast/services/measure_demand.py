"""Measures what a site is asked for: queued jobs by what they need, and the site's pilots by state.

No job is looked at one by one: the queue is counted by lane, which is what servers do to find work anyway, and one job of each
group is read as an example of what the group needs. Running jobs are counted by pilot, for the pilots of this site alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.domain.jobs.job_document import JobDocument, State, lane_named
from holdfast.domain.jobs.resources import Resources
from holdfast.domain.pilots.fleet import PilotCount
from holdfast.domain.pilots.launch import Launch
from holdfast.domain.pilots.pilot import newest_beats
from holdfast.ports.clock import Clock
from holdfast.ports.job_store import JobQuery, JobStore
from holdfast.ports.pilot_store import PilotStore
from holdfast.services.keep_launches import KeepLaunches

QUEUED = frozenset({State.AVAILABLE})
RUNNING = frozenset({State.RUNNING})
FRESH = 2.0
"""Seconds that a count of the queue is good for: several agents may ask at once."""
AT_ONCE = 1000
"""Pilots of one count."""


@dataclass(frozen=True, slots=True)
class Group:
    """Queued jobs of one resource class."""

    name: str
    tasks: int
    need: Resources
    """Of the first of them."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a site, and what it has."""

    groups: tuple[Group, ...]
    """The most urgent first."""
    sizes: Mapping[str, PilotCount]
    leaving: int
    """Pilots that said good-bye or fell silent, and whose batch jobs have not ended yet; counted as busy ones."""
    launches: tuple[Launch, ...]
    """All that have not ended."""


@dataclass(slots=True)
class _Queue:
    at: float
    groups: tuple[tuple[Group, JobDocument], ...]


@dataclass(slots=True)
class MeasureDemand:
    """The service."""

    jobs: JobStore
    pilots: PilotStore
    launches: KeepLaunches
    clock: Clock
    may_run: Callable[[JobDocument, str], bool] = lambda _job, _site: True
    """Whether a job may run at a site."""
    _queues: dict[str, _Queue] = field(default_factory=dict)

    async def measure(self, tenant: str, site: str) -> Demand:
        """The demand of one site; up to a few seconds old."""
        found = await self._queue(tenant)
        groups = tuple(group for group, example in found if self.may_run(example, site))
        launches = await self.launches.open(tenant, site)
        sizes, leaving = await self._count(tenant, launches)
        return Demand(groups, sizes, leaving, tuple(launches))

    async def _queue(self, tenant: str) -> tuple[tuple[Group, JobDocument], ...]:
        known = self._queues.get(tenant)
        now = self.clock.monotonic()
        if known is None or now - known.at >= FRESH:
            known = self._queues[tenant] = _Queue(now, await self._count_queue(tenant))
        return known.groups

    async def _count_queue(self, tenant: str) -> tuple[tuple[Group, JobDocument], ...]:
        due = {"not_before": self.clock.now()}
        lanes = await self.jobs.count(JobQuery(tenant=tenant, states=QUEUED, held=False, at_most=due), by="lane")
        tasks: dict[str, int] = {}
        first: dict[str, tuple[int, str]] = {}
        for text, many in lanes.items():
            lane = lane_named(text)
            tasks[lane.resource_class] = tasks.get(lane.resource_class, 0) + many
            first[lane.resource_class] = max(first.get(lane.resource_class, (-1, "")), (lane.priority, text))
        groups = []
        for name, (_, lane_text) in sorted(first.items(), key=lambda one: (-one[1][0], one[0])):
            query = JobQuery(tenant=tenant, states=QUEUED, held=False, at_most=due, anyof={"lane": [lane_text]})
            page = await self.jobs.search(query, sort="rank", limit=1)
            if page.jobs:
                example = page.jobs[0].document
                groups.append((Group(name, tasks[name], example.resources), example))
        return tuple(groups)

    async def _count(self, tenant: str, launches: Sequence[Launch]) -> tuple[dict[str, PilotCount], int]:
        names = [one.pilot for one in launches if one.pilot]
        busy: dict[str, int] = {}
        for start in range(0, len(names), AT_ONCE):
            query = JobQuery(tenant=tenant, states=RUNNING, anyof={"pilot": names[start : start + AT_ONCE]})
            busy |= await self.jobs.count(query, by="pilot")
        beats = newest_beats(await self.pilots.sheets()) if names else {}
        now = self.clock.now()
        counted: dict[str, list[int]] = {}
        leaving = 0
        for one in launches:
            inactive_idle_busy = counted.setdefault(one.size, [0, 0, 0])
            # A pilot that registered just now has had no time for its first beat.
            silent = bool(one.pilot) and one.pilot not in beats and now - one.registered > 60_000
            leaving += silent
            inactive_idle_busy[0 if not one.pilot else 2 if silent or one.pilot in busy else 1] += 1
        return {size: PilotCount(*three) for size, three in counted.items()}, leaving
