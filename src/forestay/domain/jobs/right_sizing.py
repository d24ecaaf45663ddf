"""What the jobs of a task would have requested on the basis of measurements: advice only, nothing acts on it.

The figure is a nearest-rank quantile of what earlier jobs used, so that at least that share of them used no more, plus some room. Jobs with larger inputs
often need more, so there is also a figure for each range of input sizes; a range of larger inputs never gets less than one of smaller ones. A job that
ran out of memory needed an unknown amount more than it requested: it counts as unbounded, and where too many did there is no figure. An input
larger than any that was measured has none either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

from forestay.domain.jobs.claim import WALL_LIMIT
from forestay.domain.jobs.job_document import AttemptOutcome, JobDocument
from forestay.domain.jobs.reuse import result_job

SHARE = 0.99
"""The share of measured jobs that used no more than the figure, before room is added."""
MEMORY_ROOM, WALL_ROOM = 1.1, 1.25
"""Run times differ more from node to node than memory does."""
LEAST = 50
"""The fewest jobs for a figure: with fewer, the largest says too little about the next."""
MOST_RANGES = 6
MIB = 1 << 20


class Measured(NamedTuple):
    """What one job requested and used, by its last attempt."""

    memory: int
    """Peak, in bytes."""
    wall: float
    """Seconds."""
    asked_memory: int
    """0: it stated none."""
    asked_wall: int | None
    input_bytes: int | None
    """None: unknown."""
    out_of_memory: bool = False
    """It was killed for exceeding its memory: it needed more than it requested."""
    out_of_time: bool = False


class SizeRange(NamedTuple):
    """The figures for jobs whose inputs are not larger than this, but larger than those of the range before."""

    up_to: int
    jobs: int
    memory: int | None
    """None: there is no figure."""
    wall: int | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The figures of a task."""

    memory: int | None
    """The figure for all its jobs; None: there is none."""
    wall: int | None
    ranges: tuple[SizeRange, ...] = ()
    """By input size, if that is known for all jobs and differs."""

    def memory_for(self, input_bytes: int | None) -> int | None:
        """The figure for a job with inputs of this size; that for all jobs if there are no ranges."""
        if not self.ranges or input_bytes is None:
            return self.memory
        return next((sizes.memory for sizes in self.ranges if input_bytes <= sizes.up_to), None)


@dataclass(frozen=True, slots=True)
class Backtest:
    """What would have happened to the newest jobs with resources derived from those before them."""

    jobs: int
    failed: int
    """Jobs that would have run out of memory, though they had enough."""
    wasted: float
    """Byte-seconds of memory that were requested and not used."""
    would_waste: float
    """The same with the figures; for a job that would have failed, all of that attempt and then the waste with its own request."""


@dataclass(frozen=True, slots=True)
class SizeAdvice:
    """The advice for a task."""

    jobs: int
    """Measured."""
    asked_memory: int
    """What most of them requested; 0: they stated none."""
    asked_wall: int | None
    out_of_memory: int
    sizes: Sizes | None
    """None: too few jobs were measured."""
    backtest: Backtest | None = None
    """None: too few, or they requested no amount of memory."""


def measured(document: JobDocument) -> Measured | None:
    """What an ended job used; None if it was not measured, reused a result, or failed before it used what it needs."""
    ending = document.winner or document.last
    if ending is None or not ending.peak_memory or ending.wall is None or result_job(document) != document.id:
        return None
    failed = ending.outcome is AttemptOutcome.FAILURE
    killed, late = failed and bool(ending.oom_kills), failed and ending.reason == WALL_LIMIT
    if failed and not killed and not late:
        return None
    asked = document.resources
    return Measured(ending.peak_memory, ending.wall, asked.memory, asked.wall, ending.input_bytes, killed, late)


def nearest_rank(values: Iterable[float], share: float) -> float:
    """The smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def sizes_of(jobs: Sequence[Measured]) -> Sizes | None:
    """The figures for a task, from its measured jobs; None if they are too few."""
    if len(jobs) < LEAST:
        return None
    return Sizes(_memory(jobs), _wall(jobs), tuple(_ranges(jobs)))


def advise(jobs: Sequence[Measured]) -> SizeAdvice:
    """The advice for a task. ``jobs``: the oldest first."""
    asked = Counter(job.asked_memory for job in jobs).most_common(1)
    walls = Counter(job.asked_wall for job in jobs).most_common(1)
    half = len(jobs) // 2
    return SizeAdvice(
        jobs=len(jobs),
        asked_memory=asked[0][0] if asked else 0,
        asked_wall=walls[0][0] if walls else None,
        out_of_memory=sum(job.out_of_memory for job in jobs),
        sizes=sizes_of(jobs),
        backtest=backtest(jobs[:half], jobs[half:]),
    )


def backtest(before: Sequence[Measured], after: Sequence[Measured]) -> Backtest | None:
    """The effect that the figures of some jobs would have had on later ones; None if there are none, or these requested no memory."""
    sizes = sizes_of(before)
    judged = [job for job in after if job.asked_memory and not job.out_of_memory]
    if sizes is None or sizes.memory is None or not judged:
        return None
    failed, wasted, would_waste = 0, 0.0, 0.0
    for job in judged:
        # Never more than was requested: this measures what can be saved.
        memory = min(sizes.memory_for(job.input_bytes) or job.asked_memory, job.asked_memory)
        spare = max(0, job.asked_memory - job.memory) * job.wall
        wasted += spare
        if job.memory > memory:
            failed += 1
            would_waste += memory * job.wall + spare
        else:
            would_waste += (memory - job.memory) * job.wall
    return Backtest(len(judged), failed, wasted, would_waste)


def _ranges(jobs: Sequence[Measured]) -> Iterable[SizeRange]:
    """Ranges with about as many jobs each; the figures never fall from one to the next."""
    if any(job.input_bytes is None for job in jobs):
        return
    ordered = sorted(jobs, key=lambda job: job.input_bytes or 0)
    count = min(MOST_RANGES, len(ordered) // LEAST)
    if count < 2 or ordered[0].input_bytes == ordered[-1].input_bytes:
        return
    memory: int | None = 0
    wall: int | None = 0
    start = 0
    for number in range(count):
        end = len(ordered) * (number + 1) // count
        # Inputs of one size are in one range.
        while end < len(ordered) and ordered[end].input_bytes == ordered[end - 1].input_bytes:
            end += 1
        if len(ordered) - end < LEAST:
            end = len(ordered)
        some = ordered[start:end]
        if len(some) < LEAST:
            continue
        memory, wall = _larger(memory, _memory(some)), _larger(wall, _wall(some))
        yield SizeRange(some[-1].input_bytes or 0, len(some), memory, wall)
        start = end


def _larger(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(before, now)


def _memory(jobs: Sequence[Measured]) -> int | None:
    return _figure(jobs, lambda job: inf if job.out_of_memory else job.memory, MEMORY_ROOM, MIB)


def _wall(jobs: Sequence[Measured]) -> int | None:
    return _figure(jobs, lambda job: inf if job.out_of_time else job.wall, WALL_ROOM, 60)


def _figure(jobs: Sequence[Measured], used: Callable[[Measured], float], room: float, unit: int) -> int | None:
    most = nearest_rank(map(used, jobs), SHARE)
    return None if most == inf else max(1, ceil(most * room / unit)) * unit
