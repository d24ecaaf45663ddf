"""The clairvoyant bound: no schedule with the same luck can be shorter.

Whoever knows all luck beforehand puts every job where its inputs lie and starts it the moment the last of them is written. He still has to compute,
to read from the local disk, all inputs at the same time, and to write every output as many times as the draws say. Claims and messages cost him nothing.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from bench.pilots.draws import READ, WRITE, Draws
from bench.pilots.workloads import Workload


@dataclass(frozen=True, slots=True)
class Bound:
    """The least seconds from the first job's start to the last job's end."""

    synchronous: float
    """A job's file may be read when it is written to the storage element."""
    write_behind: float
    """A job's file may be read from the cache as soon as it is computed; the last write still counts."""


def clairvoyant(workload: Workload, draws: Draws, pilots: int) -> Bound:
    """The longest path, and the work of all jobs on all pilots, whichever is longer."""
    size, storage = workload.size, draws.storage
    hit = size / storage.local
    written, computed = array("d", bytes(8 * workload.jobs)), array("d", bytes(8 * workload.jobs))
    work = work_behind = last_behind = 0.0
    for job in range(workload.jobs):
        start = start_behind = reading = 0.0
        for place, file in enumerate(workload.reads(job)):
            if file < workload.jobs:
                start, start_behind = max(start, written[file]), max(start_behind, computed[file])
                reading = max(reading, hit)
            else:
                reading = max(reading, draws.until_well(job, READ + place, size)[0])
        computing = draws.compute(job, workload.computing.get(workload.step(job)))
        writing = draws.until_well(job, WRITE, size)[0]
        written[job] = start + reading + computing + writing
        computed[job] = start_behind + reading + computing
        last_behind = max(last_behind, computed[job] + writing)
        work += reading + computing + writing
        work_behind += reading + computing
    return Bound(max(max(written), work / pilots), max(last_behind, work_behind / pilots))
