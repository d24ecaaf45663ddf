"""Jobs whose outputs meet: which of them belong together, where they are brought together, and the room they need there.

A job names its meeting by a key that all its fellows share: the producers whose outputs one later job reads, and that job too. The first to
be given to a pilot decides the place; room is kept there until all have been.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.scheduling.cache_index import Key


class ColocationRequest(NamedTuple):
    """With whom a job is to be brought together."""

    key: Key
    room: int = 1
    """How many of them run at the same time at the widest point: so many slots are kept for them at one place."""
    of: int = 0
    """How many they are in all, those included that come later; 0: not known."""


@dataclass(slots=True, eq=False)
class Colocation:
    """The jobs of one key."""

    meet: ColocationRequest
    place: Key | None = None
    """Where they meet; None before the first was given away."""
    given: int = 0
    running: int = 0
    waiting: dict[Key, None] = field(default_factory=dict)
    kept: int = 0
    """Slots kept at the place."""
    touched: float = 0.0

    @property
    def live(self) -> bool:
        return bool(self.waiting) or self.running > 0

    @property
    def open(self) -> bool:
        """Whether more of them are to be expected, as far as is known."""
        return self.live or self.given < self.meet.of


class Colocations:
    """All meetings; those of which nothing is heard are forgotten."""

    __slots__ = ("_all", "_begun", "_running", "keep")

    def __init__(self, keep: float) -> None:
        self.keep = keep
        """Seconds for which a meeting is remembered when none of its jobs waits or runs."""
        self._all: dict[Key, Colocation] = {}
        self._begun: OrderedDict[Key, Colocation] = OrderedDict()
        """Those that have a place, the one that was touched longest ago first."""
        self._running: dict[Key, Colocation] = {}

    def __len__(self) -> int:
        return len(self._all)

    def of(self, meet: ColocationRequest) -> Colocation | None:
        return self._all.get(meet.key)

    def arrive(self, job: Key, meet: ColocationRequest) -> Colocation:
        """A job of a meeting waits."""
        found = self._all.get(meet.key)
        if found is None:
            found = self._all[meet.key] = Colocation(meet)
        elif meet.room > found.meet.room or meet.of > found.meet.of:
            found.meet = ColocationRequest(meet.key, max(meet.room, found.meet.room), max(meet.of, found.meet.of))
        found.waiting[job] = None
        return found

    def leave(self, job: Key, meet: ColocationRequest) -> Colocation | None:
        """A job waits no more, and was not given away here."""
        found = self._all.get(meet.key)
        if found is not None:
            found.waiting.pop(job, None)
            if found.place is None and not found.waiting:
                del self._all[meet.key]
        return found

    def give(self, job: Key, meet: ColocationRequest, now: float) -> Colocation:
        """A job is given to a pilot."""
        found = self.arrive(job, meet)
        del found.waiting[job]
        found.given += 1
        found.running += 1
        self._running[job] = found
        self._touch(found, now)
        return found

    def end(self, job: Key, now: float) -> Colocation | None:
        """An attempt at a job has ended; None: it was of no meeting."""
        found = self._running.pop(job, None)
        if found is not None:
            found.running -= 1
            self._touch(found, now)
        return found

    def drop(self, meeting: Colocation) -> None:
        key = meeting.meet.key
        if self._all.get(key) is meeting:
            del self._all[key]
            self._begun.pop(key, None)

    def stale(self, now: float) -> list[Colocation]:
        """Take out the meetings of which nothing was heard for long."""
        found: list[Colocation] = []
        while self._begun:
            oldest = next(iter(self._begun.values()))
            if now - oldest.touched < self.keep:
                break
            if oldest.live:
                self._touch(oldest, now)
            else:
                self.drop(oldest)
                found.append(oldest)
        return found

    def _touch(self, meeting: Colocation, now: float) -> None:
        meeting.touched = now
        key = meeting.meet.key
        if self._all.get(key) is meeting:
            self._begun[key] = meeting
            self._begun.move_to_end(key)
