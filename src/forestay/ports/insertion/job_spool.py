"""The records of users' own batch jobs, on the machine where they were submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forestay.domain.sites.batch import BatchId
from forestay.domain.sites.cancel_call import CancelCall
from forestay.domain.sites.watched_job import PayloadRecord, Question, WatchedJob


class JobSpool(Protocol):
    """The port. Records that cannot be read are skipped and do not affect others."""

    def jobs(self) -> Sequence[WatchedJob]:
        """All unsettled records, oldest first. Anyone can leave a record in the name of any job: it counts only if its owner is the job's
        user, whom the batch system knows."""
        ...

    def discard(self, job: WatchedJob) -> None:
        """Remove only this record; other records of the same job are kept."""
        ...

    def settle(self, job: WatchedJob) -> None:
        """Close the job: no more is done for it, and from now on it is shown as its batch system reports it. An element of an array may be
        settled while the others continue."""
        ...

    def settled(self, array: WatchedJob) -> frozenset[BatchId]:
        """The settled elements of an array."""
        ...

    def cancel_calls(self) -> Sequence[CancelCall]:
        """The calls of the last minutes that cancel jobs, as far as they were recorded: each before it was made."""
        ...

    def forget_cancel_calls(self, before: float) -> None:
        """Discard the records of calls made before a time, in seconds since 1970."""
        ...

    def questions(self, jobs: Mapping[BatchId, int]) -> Mapping[BatchId, Question]:
        """The questions of those jobs that have failed and wait for a decision before they end; an array includes its elements. Each job is given with
        its user: questions that another user left in its name are ignored. `settle` answers that no more is done for the job."""
        ...

    def take(self, job: WatchedJob, start: int) -> bool:
        """Whether that start of the job still waits for a decision; if so, it will wait until the decision is carried out. Other starts end once
        they have waited too long, and report it to their engine."""
        ...

    def forget_questions(self, job: WatchedJob) -> None:
        """Discard the questions of a job that runs again."""
        ...

    def vouch(self, seconds: float, *, hide: float = 0) -> None:
        """Declare that for `seconds` from now a watcher decides on the failed jobs of this spool: meanwhile they are shown as running, for at most
        `hide` seconds after their end. 0 seconds: nobody does. The declaration is kept in the spool, so a restarted watcher knows of it."""
        ...

    def vouched(self) -> float | None:
        """Since when that has been declared without interruption, by any process, in seconds since 1970; None: not now."""
        ...

    def record(self, job: WatchedJob, restarts: int) -> PayloadRecord | None:
        """The record that this start of the job wrote of itself; None where there is none, or it does not belong to the job's owner."""
        ...

    def tail(self, path: str, owner: int) -> str:
        """The end of a job's output file; empty if it is not a plain file of its owner, or cannot be read."""
        ...

    def element_logs(self, job: WatchedJob) -> Sequence[str]:
        """The files that an element of Nextflow's array prints to, errors first. Nextflow discards what the job itself prints."""
        ...

    def told_nextflow(self, job: WatchedJob) -> bool:
        """Whether a job of Nextflow has written its exit code, from which Nextflow learns its end, whatever the batch system says. Also True where that
        cannot be seen from here."""
        ...
