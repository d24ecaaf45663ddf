"""For which pilots a job is reserved, and for how long: waitForData and look-ahead.

A job is reserved for the pilots of one place: for idle ones, and nobody else gets it for a while; or in quarantine for busy ones, and any pilot
without other work gets it. Where jobs are co-located, slots are reserved for them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice

from forestay.domain.scheduling.cache_domains import CacheDomain, LocatedPilot, ReadyDomains
from forestay.domain.scheduling.cache_index import CacheIndex, Key
from forestay.domain.scheduling.colocation import Colocation, ColocationRequest, Colocations
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.domain.scheduling.waiting_jobs import CandidateJob, WaitingJob

LOOK = 16
"""How many of the jobs that need a file, and of the places that have it, are considered."""


class DelayScheduler:
    """The reservations of one matching."""

    __slots__ = (
        "_count", "_deadlines", "_far", "_near", "_ordered", "_places", "_policy", "_sites", "colocations", "shelves",
    )  # fmt: skip

    def __init__(
        self,
        policy: MatchingPolicy,
        *,
        near: CacheIndex,
        far: CacheIndex,
        places: dict[Key, CacheDomain],
        sites: dict[Key, CacheDomain],
        ordered: bool,
    ) -> None:
        """`near` and `places` are those of hosts, `far` and `sites` those of sites; the matcher fills them."""
        self._policy = policy
        self._near, self._far = near, far
        self._places, self._sites = places, sites
        self._ordered = ordered
        self.shelves = ReadyDomains()
        self.colocations = Colocations(policy.keep)
        self._deadlines: list[tuple[float, int, WaitingJob]] = []
        self._count = 0

    def held(self, waiting: WaitingJob, asker: LocatedPilot, now: float) -> bool:
        """Whether the asking pilot should not get a job now; the job is then reserved for the one that should."""
        kept = waiting.place
        if kept is not None:
            return kept is not asker.place and kept is not asker.site
        if not self._policy.wait:
            return False
        wanted = waiting.wanted
        if wanted.colocate is not None:
            colocation = self.colocations.of(wanted.colocate)
            better = self._colocation_place(wanted.colocate, colocation, asker.place)
            if better is not None:
                return self.keep_for(waiting, better, now)
            if colocation is not None and colocation.place == asker.place.name:
                return False
        if not wanted.files:
            return False
        if asker.site is not None and len(self._sites) > 1:
            better = self._better(wanted, asker.site, self._far, self._sites)
            if better is not None and not self._near.bytes_at(asker.place.name, wanted.files):
                return self.keep_for(waiting, better, now)
        better = self._better(wanted, asker.place, self._near, self._places)
        return better is not None and self.keep_for(waiting, better, now)

    def _better(
        self, wanted: CandidateJob, mine: CacheDomain, cache_index: CacheIndex, places: dict[Key, CacheDomain]
    ) -> CacheDomain | None:
        """A place with more of a job's data than ours and a free pilot, if there is one."""
        have = cache_index.at(mine.name)
        missing = [file for file in wanted.files if file not in have]
        if not missing:
            return None
        here = cache_index.bytes_at(mine.name, wanted.files)
        best, most, busy, busiest = None, here, None, here
        for file in missing:
            for name in islice(cache_index.where(file), LOOK):
                place = places.get(name)
                if place is None or place is mine:
                    continue
                there = cache_index.bytes_at(name, wanted.files)
                if there > most and place.ready:
                    best, most = place, there
                elif there > busiest and self._policy.quarantine and len(place.quarantine) < place.slots:
                    busy, busiest = place, there
        return best if best is not None else busy

    def _colocation_place(
        self, colocate: ColocationRequest, colocation: Colocation | None, mine: CacheDomain
    ) -> CacheDomain | None:
        """The place to prefer to the asking pilot, so that a job is co-located with the others of its key."""
        if colocation is not None and colocation.place is not None:
            place = self._places.get(colocation.place)
            if place is None or place is mine:
                return None
            return place if place.ready or (self._policy.quarantine and len(place.quarantine) < place.slots) else None
        room = colocation.colocate.room if colocation is not None else colocate.room
        if room <= 1 or mine.slots - mine.kept >= room:
            return None
        return self.shelves.with_room(room)

    # -- keeping and letting go ----------------------------------------------------------------------------------

    def keep_for(self, waiting: WaitingJob, place: CacheDomain, now: float) -> bool:
        """Reserve a job for a place; False if it was held back long enough already, or too much is reserved there."""
        if waiting.held_since is None:
            waiting.held_since = now
        job = waiting.wanted.job
        if place.ready:
            until = waiting.held_since + self._policy.wait
            if until <= now:
                return False
            place.held[job] = waiting
            waiting.quarantine = False
        else:
            until = waiting.held_since + self._policy.quarantine
            if until <= now or len(place.quarantine) >= place.slots:
                return False
            place.quarantine[job] = waiting.queue.quarantine[job] = waiting
            waiting.quarantine = True
        waiting.place = place
        self._count += 1
        heappush(self._deadlines, (until, self._count, waiting))
        self.shelves.put(place)
        return True

    def let_go(self, waiting: WaitingJob) -> None:
        """Release a reserved job to any pilot."""
        self.drop(waiting)
        if self._ordered:
            waiting.queue.push(waiting)

    def drop(self, waiting: WaitingJob) -> None:
        """Remove the reservation of a job."""
        place = waiting.place
        if place is None:
            return
        job = waiting.wanted.job
        if waiting.quarantine:
            del place.quarantine[job], waiting.queue.quarantine[job]
        else:
            del place.held[job]
        waiting.place = None
        self.shelves.put(place)

    def tick(self, now: float) -> None:
        """Release jobs that were held back long enough, and drop old colocations."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            waiting = heappop(deadlines)[2]
            if waiting.place is not None:
                self.let_go(waiting)
        for colocation in self.colocations.stale(now):
            self._return_room(colocation)

    # -- room for colocations ---------------------------------------------------------------------------------------

    def keep_room(self, colocation: Colocation, place: CacheDomain) -> None:
        """Reserve this many slots for a colocation at a place."""
        place.kept += colocation.colocate.room - colocation.kept
        colocation.kept = colocation.colocate.room
        self.shelves.put(place)

    def let_room_go(self, colocation: Colocation) -> None:
        """If no more jobs are expected, release the slots to all."""
        if not colocation.open and colocation.place is not None:
            self._return_room(colocation)
            if colocation.colocate.of:
                self.colocations.drop(colocation)

    def _return_room(self, colocation: Colocation) -> None:
        place = self._places.get(colocation.place) if colocation.place is not None else None
        if place is not None and colocation.kept:
            place.kept -= colocation.kept
            self.shelves.put(place)
        colocation.kept = 0
