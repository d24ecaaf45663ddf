"""A batch system in memory that knows its jobs by name, and the end of a process in the middle of its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from forestay.domain.sites.batch import (
    SILENT,
    BatchId,
    BatchJob,
    BatchOutcome,
    BatchState,
    PilotJob,
    SubmitRefusal,
    SubmitRefused,
)
from forestay.ports.errors import Transient


class Killed(BaseException):
    """The process is gone: nothing after this line is done."""


@dataclass
class NamedBatch:
    """Fills both halves of the port of batch systems."""

    jobs: dict[BatchId, BatchJob] = field(default_factory=dict)
    asked: int = 0
    """Submissions that were tried."""
    questions: int = 0
    down: bool = False
    refuses: str = ""
    breaks: Callable[[], str] = lambda: ""
    """How the next submission ends badly: `before`, `after` or `late` it arrived; empty: it does not."""
    late: list[asyncio.Task[None]] = field(default_factory=list)
    lateness: float = 0.05
    arrival: asyncio.Event | None = None
    """What late submissions wait for instead, if it is given."""

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        self.asked += 1
        if self.down:
            return SubmitRefused(SubmitRefusal.SCHEDULER_DOWN, "Unable to contact slurm controller")
        if self.refuses:
            return SubmitRefused(SubmitRefusal.REFUSED, self.refuses, later=False)
        how = self.breaks()
        if how == "before":
            raise Killed
        if how == "late":
            self.late.append(asyncio.create_task(self._later(job)))
            raise Killed
        made = self._queue(job)
        if how == "after":
            raise Killed
        if how == "unsure":
            raise Transient("the line broke")
        return made

    async def _later(self, job: PilotJob) -> None:
        """The submit command outlives its agent."""
        await (self.arrival.wait() if self.arrival is not None else asyncio.sleep(self.lateness))
        self._queue(job)

    def _queue(self, job: PilotJob) -> BatchId:
        made = str(1000 + len(self.jobs))
        self.jobs[made] = BatchJob(made, job.name, BatchOutcome(BatchState.WAITING, "PENDING"))
        return made

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        for job in jobs:
            self.become(job, BatchState.ENDED, "CANCELLED")

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        self.questions += 1
        if self.down:
            raise Transient("Slurm's queue does not respond")
        jobs: dict[str, tuple[BatchJob, ...]] = {}
        for job in self.jobs.values():
            if job.name in names:
                jobs[job.name] = (*jobs.get(job.name, ()), job)
        return jobs

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        self.questions += 1
        return {job: SILENT if self.down else self.jobs[job].outcome for job in jobs}

    def become(self, job: BatchId, state: BatchState, word: str, **more: object) -> None:
        known = self.jobs[job]
        outcome = replace(known.outcome, state=state, word=word, **more)  # type: ignore[arg-type]
        self.jobs[job] = replace(known, outcome=outcome)

    @property
    def alive(self) -> list[BatchJob]:
        over = (BatchState.ENDED, BatchState.LOST)
        return [job for job in self.jobs.values() if job.outcome.state not in over]
