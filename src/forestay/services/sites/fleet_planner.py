"""Plans the fleet of a site from its present demand and the history of its launches.

All times are by the agent's own monotonic clock, in seconds. What is lost with the process is requested from the server again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from forestay.domain.sites.fleet import (
    FleetPlan,
    LaunchOutcome,
    PilotCount,
    PilotSize,
    TaskGroup,
    plan,
    size_and_owner,
    size_for,
)
from forestay.domain.sites.launch import GIVEN_UP
from forestay.ports.sites.site_api import SeenLaunch, SiteDemand
from forestay.services.sites.site_policy import SitePolicy

REMEMBERED = 12 * 3600
"""Seconds for which the end of a launch influences the pace of others."""
NOT_SHOWN = 5.0
"""Seconds after which a search is certain to show planned launches."""


class FleetPlanner:
    """The plans of one site's agent."""

    def __init__(self, policy: SitePolicy) -> None:
        self.policy = policy
        self.unmapped: tuple[str, ...] = ()
        """Owners of queued jobs who have no Unix user here."""
        self.remembers = False
        """Whether the launches that ended before this process began were read."""
        self._past: deque[LaunchOutcome] = deque()
        self._fresh: dict[str, tuple[str, float]] = {}
        """Recently planned launches, with size and time: the server's search may not show them yet."""
        self._beside_idle: dict[str, float] = {}
        """Since when tasks of a group wait beside idle pilots."""

    def recall(self, ended: Iterable[SeenLaunch], now: float) -> None:
        """Add the launches that ended in the last hours."""
        for launch in sorted(ended, key=lambda seen_launch: -seen_launch.age):
            self.ended(launch, now)
        self.remembers = True

    def ended(self, launch: SeenLaunch, now: float) -> None:
        """Record the end of a launch; one that was given up says nothing about the batch system."""
        if launch.word != GIVEN_UP:
            failed = None if launch.pilot else _millis(now - launch.since)
            self._past.append(
                LaunchOutcome(launch.size, _millis(now - launch.age), good=bool(launch.pilot), failed=failed)
            )

    def planned(self, launches: Mapping[str, str], now: float) -> None:
        """Add recorded launches, by id with their sizes."""
        self._fresh |= {launch: (size, now) for launch, size in launches.items()}

    def refused(self, launch: str, size: str, now: float) -> None:
        """Record that the scheduler refused a launch."""
        self._fresh.pop(launch, None)
        self._past.append(LaunchOutcome(size, _millis(now), failed=_millis(now)))

    def decide(self, seen: SiteDemand, absent: Sequence[SeenLaunch], now: float) -> FleetPlan:
        """The fleet's plan, given the launches that are or may be at the batch system; those in `absent` certainly are not."""
        pilots = dict(seen.sizes)
        for launch in absent:
            counted = pilots.get(launch.size, PilotCount())
            pilots[launch.size] = replace(counted, inactive=max(0, counted.inactive - 1))
        shown = {launch.id for launch in seen.launches}
        self._fresh = {
            launch: (size, at)
            for launch, (size, at) in self._fresh.items()
            if launch not in shown and now - at < NOT_SHOWN
        }
        for size, _ in self._fresh.values():
            counted = pilots.get(size, PilotCount())
            pilots[size] = replace(counted, inactive=counted.inactive + 1)
        missing = {launch.id for launch in absent}
        under_way = [
            LaunchOutcome(launch.size, _millis(now - launch.age), good=bool(launch.pilot))
            for launch in seen.launches
            if launch.id not in missing
        ]
        while self._past and self._past[0].planned < _millis(now - REMEMBERED):
            self._past.popleft()
        groups = self._groups(seen, pilots, now)
        return plan(
            thresholds=self.policy.thresholds,
            sizes=self._sizes(groups, pilots),
            groups=groups,
            pilots=pilots,
            pace=self.policy.pace,
            history=[*self._past, *under_way],
            now=_millis(now),
        )

    def _sizes(self, groups: Sequence[TaskGroup], pilots: Mapping[str, PilotCount]) -> Sequence[PilotSize]:
        """The sizes that may be sent; each once for every owner, where pilots are one owner's."""
        if self.policy.own_users is None:
            return self.policy.sizes
        owners = dict.fromkeys([*(group.owner for group in groups), *(size_and_owner(name)[1] for name in pilots)])
        return [
            replace(size, name=size_for(size.name, owner), owner=owner)
            for owner in owners
            if owner
            for size in self.policy.sizes
        ]

    def _groups(self, seen: SiteDemand, pilots: Mapping[str, PilotCount], now: float) -> list[TaskGroup]:
        """The tasks for which there may be pilots. Owners with few pilots come first: another's thousand tasks must not keep them out."""
        idle: set[str] = set()
        have: dict[str, int] = {}
        for name, count in pilots.items():
            _, owner = size_and_owner(name)
            have[owner] = have.get(owner, 0) + count.submitted
            if count.idle:
                idle.add(owner)
        users = self.policy.own_users
        if users is not None:
            # What was counted before the server knew of this way of running jobs has no owner.
            self.unmapped = tuple(
                sorted({group.owner for group in seen.groups if group.owner and not users.of(group.owner)})
            )
            mapped = [group for group in seen.groups if users.of(group.owner)]
            seen = seen._replace(groups=sorted(mapped, key=lambda group: have.get(group.owner, 0)))
        waiting = {group.name for group in seen.groups if group.tasks and group.owner in idle}
        self._beside_idle = {name: self._beside_idle.get(name, now) for name in waiting}
        return [
            TaskGroup(
                group.name,
                group.tasks,
                group.need,
                stale=now - self._beside_idle.get(group.name, now) >= self.policy.idle_patience,
                owner=group.owner,
            )
            for group in seen.groups
        ]


def _millis(seconds: float) -> int:
    return int(seconds * 1000)
