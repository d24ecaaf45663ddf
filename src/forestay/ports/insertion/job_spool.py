"""The records of users' own batch jobs, on the machine where they were submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forestay.domain.sites.batch import BatchId
from forestay.domain.sites.watched_job import PayloadRecord, Question, WatchedJob


class JobSpool(Protocol):
    """The port. Records that cannot be read are skipped and do not affect others."""

    def jobs(self) -> Sequence[WatchedJob]:
        """Every word that has not been settled, the oldest first. Anyone can leave one in the name of any job: it counts only if its
        owner is the job's user, which the batch system knows."""
        ...

    def discard(self, job: WatchedJob) -> None:
        """Remove this word alone; other words of the same job stay."""
        ...

    def settle(self, job: WatchedJob) -> None:
        """Nothing more comes of it: from now on it is shown as its batch system tells it. An element of an array may be settled
        while the others go on."""
        ...

    def settled(self, array: WatchedJob) -> frozenset[BatchId]:
        """The elements of an array that are settled already."""
        ...

    def questions(self, jobs: Mapping[BatchId, int]) -> Mapping[BatchId, Question]:
        """What those of the jobs ask that have failed and wait for a decision before they end; arrays stand for their elements. Each job with its
        user: what another user has put there in its name is nothing. `settle` is the answer that nothing more comes of it."""
        ...

    def take(self, job: WatchedJob, start: int) -> bool:
        """Whether that start of the job still waits for a decision; if so, it will wait until the decision is carried out. Others end as soon as
        they have waited too long, and tell their engine."""
        ...

    def forget_questions(self, job: WatchedJob) -> None:
        """It runs once more, and has nothing to ask."""
        ...

    def vouch(self, seconds: float, *, hide: float = 0) -> None:
        """For so many seconds from now somebody decides on the jobs here that fail: one is shown as running meanwhile, for at most `hide`
        seconds after its end. 0 seconds: nobody does. It is kept in the spool, so a watcher that starts anew knows of it."""
        ...

    def vouched(self) -> float | None:
        """Since when somebody does so without interruption, by whatever process, in seconds since 1970; None: nobody does now."""
        ...

    def record(self, job: WatchedJob, restarts: int) -> PayloadRecord | None:
        """What that start of the job wrote down of itself; None where it did not, or what is there is not its owner's."""
        ...

    def tail(self, path: str, owner: int) -> str:
        """The end of what a job printed; empty if it is not a plain file of its owner, or cannot be read."""
        ...

    def element_logs(self, job: WatchedJob) -> Sequence[str]:
        """The files that an element of Nextflow's array prints to, errors first. Nextflow discards what the job itself prints."""
        ...

    def told_nextflow(self, job: WatchedJob) -> bool:
        """Whether a job of Nextflow has written down its exit code, by which Nextflow knows its end, whatever the batch system says. Also where that cannot
        be seen from here."""
        ...
