"""The jobs that wait to be matched, in the order of dispatch, and by the files that they need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from forestay.domain.scheduling.cache_domains import CacheDomain
from forestay.domain.scheduling.cache_index import Key
from forestay.domain.scheduling.colocation import ColocationRequest


class CandidateJob(NamedTuple):
    """A waiting job, as matching sees it."""

    job: Key
    age: float
    """The lower, the older: jobs of one queue are given out in this order, all else being equal."""
    files: Sequence[Key] = ()
    priority: int = 0
    colocate: ColocationRequest | None = None
    queue: Key | None = None
    """The queue that is served separately from others of the same priority; None: the priority alone decides."""


@dataclass(slots=True, eq=False)
class WaitingJob:
    """A waiting job and its reservation."""

    wanted: CandidateJob
    queue: Queue
    held_since: float | None = None
    place: CacheDomain | None = None
    """The domain for whose pilots it is reserved."""
    quarantine: bool = False
    """Those pilots are busy: any pilot without other work may get it."""
    gone: bool = False


@dataclass(slots=True, eq=False)
class _FileWaiters:
    """The jobs that need a file, in the order of arrival; jobs that have left are skipped."""

    jobs: list[WaitingJob] = field(default_factory=list)
    head: int = 0
    live: int = 0

    def first(self, most: int) -> Iterator[WaitingJob]:
        jobs = self.jobs
        while self.head < len(jobs) and jobs[self.head].gone:
            self.head += 1
        if self.head > 64 and self.head * 2 > len(jobs):
            del jobs[: self.head]
            self.head = 0
        for place in range(self.head, min(len(jobs), self.head + 4 * most)):
            if not jobs[place].gone:
                yield jobs[place]
                most -= 1
                if not most:
                    return


@dataclass(slots=True, eq=False)
class Queue:
    """Jobs of one priority, or of one lane."""

    name: Key
    priority: int
    order: list[tuple[float, int, WaitingJob]] = field(default_factory=list)
    """A heap; jobs given out from its middle are skipped when they reach its top."""
    quarantine: dict[Key, WaitingJob] = field(default_factory=dict)
    """Jobs reserved for pilots that are busy now."""
    wanting: dict[Key, _FileWaiters] = field(default_factory=dict)
    many: int = 0
    pushed: int = 0
    """Among jobs of one age, the first pushed is the first given out."""

    def push(self, waiting: WaitingJob) -> None:
        self.pushed += 1
        heappush(self.order, (waiting.wanted.age, self.pushed, waiting))

    def pop(self) -> tuple[float, int, WaitingJob]:
        return heappop(self.order)

    def add(self, waiting: WaitingJob) -> None:
        self.many += 1
        for file in waiting.wanted.files:
            wanters = self.wanting.get(file)
            if wanters is None:
                wanters = self.wanting[file] = _FileWaiters()
            wanters.jobs.append(waiting)
            wanters.live += 1

    def remove(self, waiting: WaitingJob) -> None:
        self.many -= 1
        waiting.gone = True
        for file in waiting.wanted.files:
            wanters = self.wanting.get(file)
            if wanters is not None:
                wanters.live -= 1
                if wanters.live <= 0:
                    del self.wanting[file]
