"""The flows of the experiments: W1, W2 and W3 of the paper, and the shape of its Tier0 flow.

Every job writes one file, which has the job's number. Numbers from ``jobs`` on are files that were there before the first job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MB = 1_000_000
FILE = 700 * MB
PAIRS = 40
"""So many times the smallest pattern that W2 and W3 are made of stands in the paper's flows."""


Files = Callable[[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in steps, and what each reads. Nothing is listed, so that a workload of ten million jobs takes no room."""

    name: str
    steps: tuple[range, ...]
    """The jobs of each step; a step's jobs read what the steps before it wrote."""
    reads: Files
    """The files that a job reads."""
    readers: Files
    """The jobs that read a job's file."""
    names: tuple[str, ...] = ("step0", "step1")
    size: int = FILE
    computing: Mapping[int, float] = field(default_factory=dict)
    """Mean seconds of computing by step, where they differ."""

    @property
    def jobs(self) -> int:
        return self.steps[-1].stop

    def step(self, job: int) -> int:
        number = 0
        while job >= self.steps[number].stop:
            number += 1
        return number


def chain(times: int = 1, pairs: int = PAIRS) -> Workload:
    """W1: 80 jobs, and 80 that read one file each."""
    many = 2 * pairs * times
    return Workload(
        "W1",
        (range(many), range(many, 2 * many)),
        lambda job: (job - many,) if job >= many else (),
        lambda job: (job + many,) if job < many else (),
    )


def split(times: int = 1, pairs: int = PAIRS) -> Workload:
    """W2: 40 jobs, and 80 that read one file each, so that every file is read twice."""
    many = pairs * times
    return Workload(
        "W2",
        (range(many), range(many, 3 * many)),
        lambda job: ((job - many) // 2,) if job >= many else (),
        lambda job: (many + 2 * job, many + 2 * job + 1) if job < many else (),
    )


def merge(times: int = 1, pairs: int = PAIRS) -> Workload:
    """W3: 80 jobs, and 40 that read two files each."""
    many = 2 * pairs * times
    return Workload(
        "W3",
        (range(many), range(many, many + many // 2)),
        lambda job: (2 * (job - many), 2 * (job - many) + 1) if job >= many else (),
        lambda job: (many + job // 2,) if job < many else (),
    )


WORKLOADS = {"W1": chain, "W2": split, "W3": merge}


def tier0() -> Workload:
    """The shape of the Tier0 flow: 172 jobs, three steps that are merged each (the numbers are those of examples/tier0.yaml)."""
    counts = (80, 4, 60, 4, 20, 4)
    names = ("repack", "repack-merge", "prompt-reco", "reco-merge", "alca-reco", "alca-merge")
    total = sum(counts)
    starts = [sum(counts[:number]) for number in range(len(counts))]
    steps = tuple(range(start, start + count) for start, count in zip(starts, counts, strict=True))
    reads: list[tuple[int, ...]] = []
    for number, step in enumerate(steps):
        for place, _ in enumerate(step):
            if number == 0:
                reads.append((total + place,))
            elif number % 2:  # a merge job reads its share of the step before it
                reads.append(tuple(steps[number - 1])[place :: len(step)])
            else:  # the jobs of the next step share the merged files
                reads.append((steps[number - 1][place % len(steps[number - 1])],))
    # 83.41 GB are read and 112 GB written by 172 jobs: about 0.65 GB a file.
    computing = {0: 600.0, 1: 120.0, 2: 1000.0, 3: 120.0, 4: 400.0, 5: 120.0}
    readers: list[list[int]] = [[] for _ in reads]
    for job, files in enumerate(reads):
        for file in files:
            if file < total:
                readers[file].append(job)
    return Workload("Tier0", steps, reads.__getitem__, readers.__getitem__, names, 650 * MB, computing)
