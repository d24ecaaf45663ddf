"""What a batch system can do with a user's job under its own id: hold it, requeue it, release it.

An element of an array is a job of its own, with an id of its own (``12_3``). An id that stands for several jobs (an array, a heterogeneous job) is never held,
run again or cancelled: these calls refuse it with `Permanent`.

`Transient`: the batch system did not answer; repeating the call is harmless. `Permanent`: it refuses, with its own message (it has forgotten the job, or may
not run it again).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from forestay.domain.sites.batch import BatchId
from forestay.domain.sites.watched_job import ArrayReading, JobDetails, JobIdentity


def never() -> bool:
    """Nobody cancelled it."""
    return False


class BatchSteering(Protocol):
    """The port. Whoever cancels a job is obeyed: `cancelled` is asked once the job waits, when the batch system itself obeys from then on; if it says so,
    the job is cancelled instead, with `Permanent`."""

    async def identities(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        """The kind and the owner of each job that the queue or the accounting knows."""
        ...

    async def elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        """The report on each array without its healthy elements, which add no cost; one query for all arrays."""
        ...

    async def is_over(self, array: BatchId) -> bool:
        """Whether the batch system reports every element as ended. More expensive than `elements`, because it reads each."""
        ...

    async def details(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobDetails]:
        """The details of those jobs that the batch system still remembers."""
        ...

    async def peak_memory(self, job: BatchId) -> int | None:
        """The largest memory measured for a process of the job, in bytes; None where it was not measured."""
        ...

    async def allow_again(self, jobs: Collection[BatchId]) -> None:
        """Allow waiting or running jobs to be run again later, if their submitter had ruled that out. For an array: each element that has not ended."""
        ...

    async def hold(
        self, job: BatchId, *, failed_start: int | None = None, cancelled: Callable[[], bool] = never
    ) -> None:
        """Make a job wait under its id, also if it has ended, until `again`. If `failed_start` of the job still runs, it is known to have
        failed: it is ended and waits."""
        ...

    async def again(
        self,
        job: BatchId,
        *,
        needs: Mapping[str, int],
        wait: int,
        mark: str,
        avoid: Collection[str] = (),
        failed_start: int | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        """Run a job once more under its id, in `wait` seconds at the earliest, with these needs, and not on the nodes to avoid if there are enough others.
        Once for each `mark`, however often it is requested. Jobs of the same user that were given up because it had failed wait for it again.
        `failed_start` as for `hold`."""
        ...

    async def release_dependents(self, array: BatchId, owner: int) -> None:
        """Let jobs of this user that were given up because an element of the array had failed no longer wait for it, if every element has
        succeeded since."""
        ...

    async def cancel(self, job: BatchId) -> None:
        """Cancel a job."""
        ...
