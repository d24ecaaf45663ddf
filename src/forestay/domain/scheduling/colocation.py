"""Co-location of jobs whose outputs are combined later: which belong together, where they run, and the space that they need there.

A job names its colocation by a key that all its jobs share: the producers whose outputs one later job reads, and that job too. The first that is
given to a pilot determines the place; slots are reserved there until all have been given.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.scheduling.cache_index import Key


class ColocationRequest(NamedTuple):
    """The colocation that a job requests."""

    key: Key
    room: int = 1
    """How many of them run at the same time at the widest point: this many slots are reserved for them at one place."""
    of: int = 0
    """How many jobs there are in all, including later ones; 0: unknown."""


@dataclass(slots=True, eq=False)
class Colocation:
    """The jobs of one key."""

    colocate: ColocationRequest
    place: Key | None = None
    """Where they run; None before the first was given to a pilot."""
    granted: int = 0
    running: int = 0
    waiting: dict[Key, None] = field(default_factory=dict)
    kept: int = 0
    """Slots reserved at the place."""
    touched: float = 0.0

    @property
    def live(self) -> bool:
        return bool(self.waiting) or self.running > 0

    @property
    def open(self) -> bool:
        """Whether more of its jobs are expected, as far as known."""
        return self.live or self.granted < self.colocate.of


class Colocations:
    """All colocations; inactive ones are dropped after a while."""

    __slots__ = ("_all", "_begun", "_running", "keep")

    def __init__(self, keep: float) -> None:
        self.keep = keep
        """Seconds for which a colocation is kept when none of its jobs waits or runs."""
        self._all: dict[Key, Colocation] = {}
        self._begun: OrderedDict[Key, Colocation] = OrderedDict()
        """Those that have a place, the least recently used first."""
        self._running: dict[Key, Colocation] = {}

    def __len__(self) -> int:
        return len(self._all)

    def of(self, colocate: ColocationRequest) -> Colocation | None:
        return self._all.get(colocate.key)

    def arrive(self, job: Key, colocate: ColocationRequest) -> Colocation:
        """A job of a colocation starts to wait."""
        colocation = self._all.get(colocate.key)
        if colocation is None:
            colocation = self._all[colocate.key] = Colocation(colocate)
        elif colocate.room > colocation.colocate.room or colocate.of > colocation.colocate.of:
            colocation.colocate = ColocationRequest(
                colocate.key, max(colocate.room, colocation.colocate.room), max(colocate.of, colocation.colocate.of)
            )
        colocation.waiting[job] = None
        return colocation

    def leave(self, job: Key, colocate: ColocationRequest) -> Colocation | None:
        """A job no longer waits, and was not given to a pilot here."""
        colocation = self._all.get(colocate.key)
        if colocation is not None:
            colocation.waiting.pop(job, None)
            if colocation.place is None and not colocation.waiting:
                del self._all[colocate.key]
        return colocation

    def give(self, job: Key, colocate: ColocationRequest, now: float) -> Colocation:
        """A job is given to a pilot."""
        colocation = self.arrive(job, colocate)
        del colocation.waiting[job]
        colocation.granted += 1
        colocation.running += 1
        self._running[job] = colocation
        self._touch(colocation, now)
        return colocation

    def end(self, job: Key, now: float) -> Colocation | None:
        """An attempt at a job has ended; None: the job had no colocation."""
        colocation = self._running.pop(job, None)
        if colocation is not None:
            colocation.running -= 1
            self._touch(colocation, now)
        return colocation

    def drop(self, colocation: Colocation) -> None:
        key = colocation.colocate.key
        if self._all.get(key) is colocation:
            del self._all[key]
            self._begun.pop(key, None)

    def stale(self, now: float) -> list[Colocation]:
        """Remove the colocations that have been inactive for long."""
        colocations: list[Colocation] = []
        while self._begun:
            oldest = next(iter(self._begun.values()))
            if now - oldest.touched < self.keep:
                break
            if oldest.live:
                self._touch(oldest, now)
            else:
                self.drop(oldest)
                colocations.append(oldest)
        return colocations

    def _touch(self, colocation: Colocation, now: float) -> None:
        colocation.touched = now
        key = colocation.colocate.key
        if self._all.get(key) is colocation:
            self._begun[key] = colocation
            self._begun.move_to_end(key)
