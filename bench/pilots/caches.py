"""The caches of a simulated site: the pilots' own books, kept by pilot or by host, and who has which file."""

from __future__ import annotations

from bench.pilots.arms import Caching
from forestay_pilot.cache.cache_policy import CacheBook, cache_size, host_cache_size

SPACE = 10_000_000_000
"""Bytes that the site gives each pilot, as CMS does."""
JOB_SPACE = 1_500_000_000
"""Bytes that stay free for the running job."""


class Caches:
    """A holder is a pilot where each keeps its own files, else a host."""

    def __init__(self, caching: Caching, hosts: int, slots: int, policy: str = "lru", space: int = SPACE) -> None:
        self.caching = caching
        self.by_pilot = caching is Caching.PILOT
        self.slots = slots
        self.space = space
        self.speaker: dict[int, int] = {}
        """The pilot that tells the servers what a holder has: the first that came there."""
        self._pilots: dict[int, int] = {}
        many = hosts * slots if self.by_pilot else hosts
        room = cache_size(space, JOB_SPACE)
        self.books = [] if caching is Caching.NONE else [CacheBook(room, policy) for _ in range(many)]
        self.holders: dict[str, list[int]] = {}
        """Who has each file that anyone has."""
        self.evicted = 0

    def holder(self, pilot: int) -> int:
        return pilot if self.by_pilot else pilot // self.slots

    def join(self, pilot: int) -> None:
        """A pilot more: a host's cache grows with its pilots."""
        holder = self.holder(pilot)
        self.speaker.setdefault(holder, pilot)
        many = self._pilots[holder] = self._pilots.get(holder, 0) + 1
        if self.books and not self.by_pilot:
            self.books[holder].resize(host_cache_size(self.space, many, JOB_SPACE))

    def use(self, holder: int, file: str) -> bool:
        """Whether the holder has the file; if so, that is a use of it."""
        return bool(self.books) and self.books[holder].use(file)

    def add(self, holder: int, file: str, size: int) -> list[str] | None:
        """Keep a file and let go of what must go for it, which is given back; None: nothing changes."""
        if not self.books:
            return None
        book = self.books[holder]
        if file in book:
            return None
        removed = book.add(file, size)
        if removed is None:
            return None
        for other_file in removed:
            self.evicted += 1
            self._lost(holder, other_file)
        holders = self.holders.get(file)
        if holders is None:
            self.holders[file] = [holder]
        else:
            holders.append(holder)
        return removed

    def _lost(self, holder: int, file: str) -> None:
        left = self.holders[file]
        left.remove(holder)
        if not left:
            del self.holders[file]
