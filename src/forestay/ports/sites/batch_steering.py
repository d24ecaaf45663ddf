"""What a batch system can do with a user's job under its own id: hold it, requeue it, release it.

An element of an array is a job of its own, with an id of its own (``12_3``). An id that stands for several jobs (an array, a heterogeneous job) is never held,
run again or cancelled: these acts refuse it with `Permanent`.

`Transient`: the batch system did not answer; the same again is harmless. `Permanent`: it refuses, in its own words (it has forgotten the job, or may not run
it again).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from forestay.domain.sites.batch import BatchId
from forestay.domain.sites.watched_job import ArrayReading, JobDetails, JobIdentity


class BatchSteering(Protocol):
    """The port."""

    async def identities(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        """What kind of jobs these are, and whose; those that the queue or the accounting knows."""
        ...

    async def elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        """What is to be known of the elements of each array, by one question for all. Those that are well do not make it dearer."""
        ...

    async def is_over(self, array: BatchId) -> bool:
        """Whether the batch system says of every element that it has ended. Dearer than `elements`, for it looks at each."""
        ...

    async def details(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobDetails]:
        """Those of the jobs that the batch system still remembers."""
        ...

    async def peak_memory(self, job: BatchId) -> int | None:
        """The most memory that a process of it was seen to have, in bytes; None where nobody measured."""
        ...

    async def allow_again(self, jobs: Collection[BatchId]) -> None:
        """Jobs that wait or run may be run again later, if their submitter had ruled that out. For an array: each element that has not ended."""
        ...

    async def hold(self, job: BatchId, *, failed_start: int | None = None) -> None:
        """It waits under its id, also if it has ended, and does not start before `again`. A job whose start of that number still runs is known to have
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
    ) -> None:
        """It runs once more under its id, in so many seconds at the earliest, with these needs, and not on the nodes to be avoided if there are enough others.
        Once for a mark, however often it is asked for. Jobs of the same user that were given up because it had failed wait for it again.
        `failed_start` as for `hold`."""
        ...

    async def release_dependents(self, array: BatchId, owner: int) -> None:
        """Jobs of this user that were given up because an element of the array had failed no longer wait for it, if every element has ended
        well since."""
        ...

    async def cancel(self, job: BatchId) -> None:
        """It is taken out of the queue."""
        ...
