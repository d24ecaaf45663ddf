"""Which cached files are kept: sizes by the paper's formulas, and the eviction policies.

Pure bookkeeping: no disk, no clock, no chance. What matters about time is the order of uses, which is counted here, so that a
simulation that calls the same code sees the same choices as a pilot. Each policy gives a file a rank; the lowest goes first. Ranks
only ever rise while a file stays, so one heap serves every policy: a use costs O(1), a removal O(log n).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Callable, ClassVar

GONE = -1  # the place of a file that was removed, while the heap still holds its old rank


def cache_size(max_space: int, min_threshold: int) -> int:
    """What a pilot may keep: its space but for what a running job needs."""
    return max(0, max_space - min_threshold)


def host_cache_size(max_space: int, pilots: int, min_threshold: int) -> int:
    """What each pilot of a host may keep when they share what they have; follows their number."""
    return max(0, max_space * max(1, pilots) - min_threshold)


class CacheEntry:
    """One cached file, as a policy sees it."""

    __slots__ = ("before", "cost", "key", "last", "pins", "rank", "size", "state", "uses")

    def __init__(self, key: str, size: int, cost: float, now: int) -> None:
        self.key = key
        self.size = size
        self.cost = cost  # the cost of fetching it again, in any one unit
        self.uses = 1
        self.last = now  # the number of its last use, and of the one before
        self.before = 0
        self.pins = 0  # jobs that have it in their folder now
        self.rank = 0.0
        self.state = 0  # how many places of the heap are its own, or GONE


class Policy:
    """Gives a file its rank when it comes and at each use. ``floor`` is the rank of what was removed last."""

    name: ClassVar[str] = ""

    def rank(self, entry: CacheEntry, floor: float) -> float:
        """The rank of a file that has just come or been used; never lower than it had."""
        raise NotImplementedError


class FirstIn(Policy):
    """The file that came first goes first, however much it is used."""

    name = "fifo"

    def rank(self, entry: CacheEntry, floor: float) -> float:
        return float(entry.last) if entry.uses == 1 else entry.rank


class LeastRecent(Policy):
    """The paper's own: the file not used for the longest time goes first."""

    name = "lru"

    def rank(self, entry: CacheEntry, floor: float) -> float:
        return float(entry.last)


class SecondLeastRecent(Policy):
    """LRU-2: the file whose last but one use is the oldest goes first, so that files read once do not drive out others."""

    name = "lru2"

    def rank(self, entry: CacheEntry, floor: float) -> float:
        # Those with one use come below all with two, the oldest first.
        return float(entry.before) if entry.uses > 1 else -1.0 / entry.last


class LeastFrequent(Policy):
    """Least often used, with aging: a file that comes starts at the level of what was last removed, so old fame fades."""

    name = "lfu"

    def rank(self, entry: CacheEntry, floor: float) -> float:
        return max(entry.rank, floor + entry.uses)


class CostAware(Policy):
    """GreedyDual-Size-Frequency: uses times cost per byte, over the level of what was last removed."""

    name = "gdsf"

    def rank(self, entry: CacheEntry, floor: float) -> float:
        return max(entry.rank, floor + entry.uses * entry.cost / max(1, entry.size))


POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (LeastRecent, FirstIn, SecondLeastRecent, LeastFrequent, CostAware)
}


class CacheBook:
    """The files of a cache and the space they take; decides what must go for a new one.

    A file that is pinned is in some job's folder and never chosen. Removal follows the paper: when a new file does not fit, files go
    until the sum of those removed is at least the new one's size. ``exact`` counts the free space too and removes no more than needed.
    """

    def __init__(self, capacity: int, policy: str = "lru", *, exact: bool = False) -> None:
        if policy not in POLICIES:
            raise ValueError(f"there is no cache policy {policy!r}; use one of {', '.join(POLICIES)}")
        self.capacity = capacity
        self.used = 0
        self.pinned = 0
        self._exact = exact
        self._policy = POLICIES[policy]()
        self._entries: dict[str, CacheEntry] = {}
        self._heap: list[tuple[float, int, CacheEntry]] = []
        self._now = 0
        self._floor = 0.0
        self._stale = 0

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, key: str) -> CacheEntry | None:
        """What is known of a file; no use is counted."""
        return self._entries.get(key)

    def use(self, key: str) -> bool:
        """Count a use; returns whether the file is in the cache."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._now += 1
        entry.uses += 1
        entry.before, entry.last = entry.last, self._now
        entry.rank = self._policy.rank(entry, self._floor)
        return True

    def pin(self, key: str) -> bool:
        """Keep a file while a job uses it; returns whether it is in the cache."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        entry.pins += 1
        if entry.pins == 1:
            self.pinned += entry.size
        return True

    def unpin(self, key: str) -> None:
        """One job fewer has the file."""
        entry = self._entries.get(key)
        if entry is None or not entry.pins:
            return
        entry.pins -= 1
        if not entry.pins:
            self.pinned -= entry.size
            if not entry.state:
                self._push(entry)

    def fits(self, size: int) -> bool:
        """Whether a file of this size fits after all removable files are removed."""
        return 0 <= size <= self.capacity - self.pinned

    def add(self, key: str, size: int, cost: float = 1.0) -> list[str] | None:
        """Take a file in; gives what must be removed for it, or nothing at all (None) when it cannot fit."""
        if key in self._entries:
            self.use(key)
            return []
        if not self.fits(size):
            return None
        removed = self.make_room(size)
        self._now += 1
        entry = CacheEntry(key, size, cost, self._now)
        entry.rank = self._policy.rank(entry, self._floor)
        self._entries[key] = entry
        self.used += size
        self._push(entry)
        return removed

    def make_room(self, size: int) -> list[str]:
        """Remove files for one of this size, if it does not fit as it is."""
        removed: list[str] = []
        if self.used + size <= self.capacity:
            return removed
        freed = 0
        while (freed < size and not self._exact) or self.used + size > self.capacity:
            entry = self._next()
            if entry is None:
                break
            freed += entry.size
            removed.append(entry.key)
        return removed

    def resize(self, capacity: int) -> list[str]:
        """Follow a new capacity; gives what must be removed for it. What is pinned goes at a later call."""
        self.capacity = capacity
        removed: list[str] = []
        while self.used > self.capacity:
            entry = self._next()
            if entry is None:
                break
            removed.append(entry.key)
        return removed

    def free(self, amount: int, frees: Callable[[str], bool]) -> list[str]:
        """Remove files in the policy's order until those removed sum to the amount; only such that free real space when they go."""
        passed: list[CacheEntry] = []
        removed: list[str] = []
        freed = 0
        while freed < amount:
            entry = self._pop()
            if entry is None:
                break
            if not frees(entry.key):
                passed.append(entry)
                continue
            freed += entry.size
            removed.append(entry.key)
            self._floor = max(self._floor, entry.rank)
            self._forget(entry)
        for entry in passed:
            self._push(entry)
        return removed

    def discard(self, key: str) -> bool:
        """Forget a file that was removed for another reason; returns whether it was in the cache."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        if entry.pins:
            self.pinned -= entry.size
        if entry.state > 0:
            self._stale += 1
        self._forget(entry)
        if self._stale > 64 and self._stale > len(self._heap) // 2:
            self._heap = [place for place in self._heap if place[2].state != GONE]
            heapq.heapify(self._heap)
            self._stale = 0
        return True

    def _forget(self, entry: CacheEntry) -> None:
        del self._entries[entry.key]
        self.used -= entry.size
        entry.state = GONE

    def _push(self, entry: CacheEntry) -> None:
        entry.state = 1
        heapq.heappush(self._heap, (entry.rank, entry.last, entry))

    def _pop(self) -> CacheEntry | None:
        """The file of the lowest rank that is not pinned, taken out of the heap."""
        while self._heap:
            rank, _, entry = heapq.heappop(self._heap)
            if entry.state == GONE:
                self._stale -= 1
            elif entry.pins:
                entry.state = 0  # comes back when the last job releases it
            elif rank < entry.rank:
                heapq.heappush(self._heap, (entry.rank, entry.last, entry))  # it was used since
            else:
                entry.state = 0
                return entry
        return None

    def _next(self) -> CacheEntry | None:
        entry = self._pop()
        if entry is not None:
            self._floor = max(self._floor, entry.rank)
            self._forget(entry)
        return entry
