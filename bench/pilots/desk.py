"""Where simulated pilots ask for jobs: the servers' own matching, and who is woken when a job comes."""

from __future__ import annotations

from bench.pilots.arms import Arm
from bench.pilots.caches import Caches
from bench.pilots.workloads import Workload
from forestay.domain.scheduling.colocation import ColocationRequest
from forestay.domain.scheduling.matching import Matching
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.domain.scheduling.waiting_jobs import CandidateJob

WAIT = 60.0
"""Seconds for which a job is held back where jobs wait for data."""
PUT_ASIDE = 3600.0
"""Seconds for which one is put aside for its busy place, with look-ahead."""


def file_name(number: int) -> str:
    return f"f{number}"


def colocate(workload: Workload, job: int, most: int) -> ColocationRequest | None:
    """With whom a job belongs together: those that write what one job reads, and all that read it, if a host has room for them."""
    first = min((file for file in workload.reads(job) if file < workload.jobs), default=job)
    readers = workload.readers(first)
    if not readers:
        return None
    writers = [file for file in workload.reads(readers[0]) if file < workload.jobs]
    room = max(len(readers), len(writers))
    return ColocationRequest(writers[0], room, len(readers) + len(writers)) if room <= most else None


class Desk:
    """Jobs that wait, pilots that ask."""

    def __init__(self, workload: Workload, caches: Caches, arm: Arm) -> None:
        self.bound = WAIT if arm.wait_for_data else 0.0
        self.matching = Matching(MatchingPolicy(wait=self.bound, quarantine=PUT_ASIDE if arm.look_ahead else 0.0))
        self._idle: dict[int, None] = {}
        """Pilots that have nothing to do, the one that has asked for the longest time first."""
        self._workload, self._caches, self._ahead = workload, caches, arm.look_ahead

    @property
    def waiting(self) -> int:
        return len(self.matching)

    @property
    def idle(self) -> int:
        return len(self._idle)

    def join(self, pilot: int) -> None:
        self._caches.join(pilot)
        self.matching.join(pilot, self._caches.holder(pilot))
        self.freed(pilot)

    def freed(self, pilot: int) -> None:
        """A pilot has nothing to do."""
        self._idle[pilot] = None
        self.matching.idle(pilot)

    def wait(self, job: int, now: float) -> None:
        """A job waits."""
        files = [file_name(number) for number in self._workload.reads(job)]
        together = colocate(self._workload, job, self._caches.slots) if self._ahead else None
        self.matching.arrive(CandidateJob(job, job, files, colocate=together), now)

    def ask(self, pilot: int, now: float) -> int | None:
        """The job that a pilot gets; None: it stays idle."""
        job = self.matching.take(pilot, now)
        if job is None:
            return None
        del self._idle[pilot]
        assert isinstance(job, int)
        return job

    def wake(self, job: int, now: float) -> int | None:
        """The idle pilot that should look for work because this job waits; None: nobody is idle, or the job is given away."""
        if not self._idle or job not in self.matching:
            return None
        if not self.bound:  # where nobody waits for data, who has waited longest is answered first
            return next(iter(self._idle))
        pilot = self.matching.pilot_for(job, now)
        assert pilot is None or isinstance(pilot, int)
        return pilot

    def kept(self, holder: int, file: str, size: int) -> None:
        """A holder's cache has a file more."""
        removed = self._caches.add(holder, file, size)
        if removed is not None:
            self.matching.cached(self._caches.speaker[holder], ((file, size),), removed)

    def over(self, job: int, now: float) -> None:
        """A run of a job has ended, well or not."""
        self.matching.ended(job, now)
