"""Measures the demand on a site: queued jobs by their resources, and the site's pilots by state.

Jobs are not read one by one: the queue is counted by lane, as servers do anyway to find work, and one job of each
group is read as an example of its needs. Running jobs are counted by pilot, for the pilots of each site.

With several sites, each gets its share of the demand: see `domain.sites.site_shares`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from forestay.domain.jobs.job_document import JobDocument, QueueLane, State, lane_named
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import newest_heartbeats
from forestay.domain.sites.fleet import PilotCount, PilotSize, size_and_owner, size_for
from forestay.domain.sites.launch import Launch
from forestay.domain.sites.site_shares import SiteStatus, shares
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.pilots.pilot_launches import PilotLaunches
from forestay.services.sites.site_registry import Site, SiteRegistry

QUEUED = frozenset({State.AVAILABLE})
RUNNING = frozenset({State.RUNNING})
FRESH = 2.0
"""Seconds for which a count of the queue is cached: several agents may ask at once."""
AT_ONCE = 1000
"""Pilots of one count."""
MOST_GROUPS = 1000
"""Of the queued jobs, those that a site is told of at once."""
UNKNOWN = 2**55
"""The assumed offer of a site whose agent did not report it."""


@dataclass(frozen=True, slots=True)
class DemandGroup:
    """Queued jobs of one resource class."""

    name: str
    tasks: int
    need: Resources
    """Of the first of them."""
    owner: str = ""
    """Whose they are, at a site that runs jobs as their submitters."""
    owners: Mapping[str, int] = field(default_factory=dict)
    """How many of them are whose."""

    def by_owner(self) -> list[DemandGroup]:
        """A group for each owner; what the jobs of one class need differs little."""
        return [
            DemandGroup(size_for(self.name, owner), tasks, self.need, owner) for owner, tasks in self.owners.items()
        ]


@dataclass(frozen=True, slots=True)
class Demand:
    """What is asked of a site, and what it has."""

    groups: tuple[DemandGroup, ...]
    """Most urgent first."""
    sizes: Mapping[str, PilotCount]
    leaving: int
    """Pilots that said good-bye or fell silent, and whose batch jobs have not ended yet; counted as busy ones."""
    launches: tuple[Launch, ...]
    """All that have not ended."""


@dataclass(slots=True)
class _Queue:
    at: float
    groups: tuple[tuple[DemandGroup, JobDocument], ...]


@dataclass(slots=True)
class _Counted:
    at: float
    sizes: Mapping[str, PilotCount]


@dataclass(slots=True)
class DemandMeter:
    """The service."""

    jobs: JobStore
    pilots: PilotStore
    launches: PilotLaunches
    sites: SiteRegistry
    clock: Clock
    may_run: Callable[[JobDocument, str], bool] = lambda _job, _site: True
    """Whether a job may run at a site."""
    room: Callable[[QueueLane], int | None] = lambda _lane: None
    """How many more jobs of a queue lane may run now; None: any number."""
    _queues: dict[str, _Queue] = field(default_factory=dict)
    _counted: dict[tuple[str, str], _Counted] = field(default_factory=dict)
    """The pilots of sites, for the others."""

    async def measure(self, tenant: str, site: str) -> Demand:
        """The demand of one site; up to a few seconds old."""
        launches = await self.launches.open(tenant, site)
        sizes, leaving = await self._count(tenant, launches)
        self._counted[tenant, site] = _Counted(self.clock.monotonic(), _for_all(sizes))
        asking = await self.sites.get(tenant, site)
        status = await self._statuses(tenant, site, asking)
        groups: list[DemandGroup] = []
        for group, example in await self._queue(tenant):
            if len(groups) >= MOST_GROUPS:
                break
            able = [site_status for site_status in status if self.may_run(example, site_status.name)]
            for part in group.by_owner() if asking is not None and asking.as_submitter else [group]:
                parts = shares(part.tasks, part.need, able)
                if site in parts:
                    groups.append(replace(part, tasks=parts[site]))
                elif not parts and any(status.name == site for status in able):
                    groups.append(part)  # no site can run them: each one's agent says so
        return Demand(tuple(groups), sizes, leaving, tuple(launches))

    async def _statuses(self, tenant: str, site: str, asking: Site | None) -> list[SiteStatus]:
        """The site that asks, and the others whose agents were heard of."""
        now = self.clock.now()
        known = {row.name: row for row in await self.sites.all(tenant) if row.name != site}
        status = [SiteStatus(site, _sizes(asking), self._counted[tenant, site].sizes, _most(asking))]
        for other_site in known.values():
            # The calling site counts as healthy in any case: a demand shows whether it is.
            well = not other_site.overdue(now) and not other_site.report.get("trouble")
            counted = await self._counted_of(tenant, other_site.name)
            status.append(SiteStatus(other_site.name, _sizes(other_site), counted, _most(other_site), well))
        return status

    async def _counted_of(self, tenant: str, site: str) -> Mapping[str, PilotCount]:
        known = self._counted.get((tenant, site))
        now = self.clock.monotonic()
        if known is None or now - known.at >= FRESH:
            sizes, _ = await self._count(tenant, await self.launches.open(tenant, site))
            known = self._counted[tenant, site] = _Counted(now, _for_all(sizes))
        return known.sizes

    async def _queue(self, tenant: str) -> tuple[tuple[DemandGroup, JobDocument], ...]:
        known = self._queues.get(tenant)
        now = self.clock.monotonic()
        if known is None or now - known.at >= FRESH:
            known = self._queues[tenant] = _Queue(now, await self._count_queue(tenant))
        return known.groups

    async def _count_queue(self, tenant: str) -> tuple[tuple[DemandGroup, JobDocument], ...]:
        due = {"not_before": self.clock.now()}
        lanes = await self.jobs.count(JobQuery(tenant=tenant, states=QUEUED, held=False, at_most=due), by="lane")
        tasks: dict[str, int] = {}
        owners: dict[str, dict[str, int]] = {}
        first: dict[str, tuple[int, str]] = {}
        for text, many in lanes.items():
            lane = lane_named(text)
            if lane.tenant != tenant:
                continue  # for a downstream: no pilot may claim them
            room = self.room(lane)
            many = many if room is None else min(many, room)
            if not many:
                continue  # they wait for a quota: a pilot would wait with them
            tasks[lane.resource_class] = tasks.get(lane.resource_class, 0) + many
            of_class = owners.setdefault(lane.resource_class, {})
            of_class[lane.owner] = of_class.get(lane.owner, 0) + many
            here = (lane.priority, text)
            first[lane.resource_class] = max(first.get(lane.resource_class, here), here)
        groups = []
        for name, (_, lane_text) in sorted(first.items(), key=lambda pair: (-pair[1][0], pair[0])):
            query = JobQuery(tenant=tenant, states=QUEUED, held=False, at_most=due, anyof={"lane": [lane_text]})
            page = await self.jobs.search(query, sort="rank", limit=1)
            if page.jobs:
                example = page.jobs[0].document
                groups.append((DemandGroup(name, tasks[name], example.resources, owners=owners[name]), example))
        return tuple(groups)

    async def _count(self, tenant: str, launches: Sequence[Launch]) -> tuple[dict[str, PilotCount], int]:
        names = [launch.pilot for launch in launches if launch.pilot]
        busy: dict[str, int] = {}
        for start in range(0, len(names), AT_ONCE):
            query = JobQuery(tenant=tenant, states=RUNNING, anyof={"pilot": names[start : start + AT_ONCE]})
            busy |= await self.jobs.count(query, by="pilot")
        heartbeats = newest_heartbeats(await self.pilots.heartbeat_pages()) if names else {}
        now = self.clock.now()
        counted: dict[str, list[int]] = {}
        leaving = 0
        for launch in launches:
            inactive_idle_busy = counted.setdefault(size_for(launch.size, launch.owner), [0, 0, 0])
            # A pilot that registered just now has had no time for its first heartbeat.
            silent = bool(launch.pilot) and launch.pilot not in heartbeats and now - launch.registered > 60_000
            leaving += silent
            inactive_idle_busy[0 if not launch.pilot else 2 if silent or launch.pilot in busy else 1] += 1
        return {size: PilotCount(*three) for size, three in counted.items()}, leaving


def _for_all(sizes: Mapping[str, PilotCount]) -> dict[str, PilotCount]:
    """The pilots of each size, whosever they are."""
    counted: dict[str, PilotCount] = {}
    for name, count in sizes.items():
        size, _ = size_and_owner(name)
        before = counted.get(size, PilotCount())
        counted[size] = PilotCount(before.inactive + count.inactive, before.idle + count.idle, before.busy + count.busy)
    return counted


def _most(site: Site | None) -> int:
    most = site.report.get("max_pilots") if site is not None else None
    return most if isinstance(most, int) else UNKNOWN


def _sizes(site: Site | None) -> tuple[PilotSize, ...]:
    """The sizes that a site's agent reported; any size if it has not reported yet."""
    sizes = site.report.get("sizes") if site is not None else None
    if not isinstance(sizes, list):
        return (PilotSize("", Resources(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)),)
    return tuple(
        PilotSize(
            str(size["name"]),
            Resources(size["cpus"], size["memory"], size["disk"], size["gpus"], size["wall"], size.get("nodes", 1)),
            size["slots"],
        )
        for size in sizes
        if isinstance(size, Mapping)
    )
