"""Cache domains: pilots that share their files, with the idle pilots and the reserved jobs of each."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forestay.domain.scheduling.cache_index import Key

if TYPE_CHECKING:
    from forestay.domain.scheduling.waiting_jobs import WaitingJob


@dataclass(slots=True, eq=False)
class CacheDomain:
    """Pilots that share their files: those of a host, or those of a site."""

    name: Key
    slots: int = 0
    idle: dict[Key, int] = field(default_factory=dict)
    """Its pilots with free slots, and how many."""
    free: int = 0
    kept: int = 0
    """Slots that colocations need here, including those of their running jobs."""
    held: dict[Key, WaitingJob] = field(default_factory=dict)
    """Jobs reserved for its idle pilots: nobody else gets them for a while."""
    quarantine: dict[Key, WaitingJob] = field(default_factory=dict)
    """Jobs reserved for its busy pilots, as long as others find other work."""
    shelf: int | None = None

    @property
    def ready(self) -> bool:
        """Whether there is an idle pilot without a reserved job."""
        return self.free > len(self.held)


@dataclass(slots=True, eq=False)
class LocatedPilot:
    """A pilot, its location and its load."""

    name: Key
    place: CacheDomain
    site: CacheDomain | None
    slots: int = 1
    free: int = 0


class ReadyDomains:
    """The domains that are ready, by the number of slots that no colocation needs."""

    __slots__ = ("_shelves",)

    def __init__(self) -> None:
        self._shelves: dict[int, OrderedDict[CacheDomain, None]] = {}

    def put(self, place: CacheDomain) -> None:
        """Record a change of a domain."""
        shelf = place.slots - place.kept if place.free > len(place.held) else None
        if shelf != place.shelf:
            if place.shelf is not None:
                del self._shelves[place.shelf][place]
            if shelf is not None:
                if shelf not in self._shelves:
                    self._shelves[shelf] = OrderedDict()
                self._shelves[shelf][place] = None
            place.shelf = shelf

    def with_room(self, room: int) -> CacheDomain | None:
        for spare, shelf in self._shelves.items():
            if spare >= room and shelf:
                return next(iter(shelf))
        return None
