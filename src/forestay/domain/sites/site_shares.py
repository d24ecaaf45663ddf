"""How queued tasks are divided among several sites, so that each submits pilots only for its share.

Pilots that wait or are idle cover tasks, wherever they are. The remaining tasks are divided among the sites that can run them, in
proportion to the room that each has left. A site whose agent is silent or has problems gets no share, and pilots that wait at its scheduler
cover nothing: pilots for its tasks are submitted elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, PilotSize


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """A site as its agent reports it, with counts of its pilots."""

    name: str
    sizes: tuple[PilotSize, ...]
    pilots: Mapping[str, PilotCount]
    max_pilots: int
    well: bool = True

    def covers(self, need: Resources) -> int:
        """How many such tasks its pilots without work can take."""
        return sum(
            size.at_once(need) * ((count.inactive if self.well else 0) + count.idle)
            for size in self.sizes
            if (count := self.pilots.get(size.name)) is not None
        )

    def room(self, need: Resources) -> int:
        """How many such tasks the pilots that may still be sent could take."""
        at_once = next((many for size in self.sizes if (many := size.at_once(need))), 0)
        submitted = sum(pilot.submitted for pilot in self.pilots.values())
        return at_once * max(0, self.max_pilots - submitted) if self.well else 0

    def fits(self, need: Resources) -> bool:
        return any(size.at_once(need) for size in self.sizes)


def shares(tasks: int, need: Resources, sites: Sequence[SiteStatus]) -> dict[str, int]:
    """The tasks that each site should cover, including those that its pilots already cover; a site that cannot run them is left out.

    A site gets more than it has room for only if no other site has room either.
    """
    fitting = [site for site in sites if site.fits(need)]
    covered = {status.name: min(tasks, status.covers(need)) for status in fitting}
    left = max(0, tasks - sum(covered.values()))
    rooms = {status.name: status.room(need) for status in fitting}
    parts = _in_proportion(left, rooms)
    beyond = left - sum(parts.values())
    if beyond:
        # No site has room: each may report this, and the first that gets room takes them.
        parts = {name: part + beyond for name, part in parts.items()}
    return {name: min(tasks, covered[name] + parts[name]) for name in covered}


def _in_proportion(amount: int, rooms: Mapping[str, int]) -> dict[str, int]:
    """Integer parts of an amount by room, none larger than its room; the largest remainders are rounded up, ties by name."""
    total = sum(rooms.values())
    if amount >= total:
        return dict(rooms)
    parts = {name: amount * room // total for name, room in rooms.items()}
    by_remainder = sorted(rooms, key=lambda name: (-(amount * rooms[name] % total), name))
    for name in by_remainder[: amount - sum(parts.values())]:
        parts[name] += 1
    return parts
