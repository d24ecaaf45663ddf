"""The batch system of a site: submits pilots and reports their states.

The contract:

- A submission that may have gone through is never repeated blindly. `submit` answers with an id (it is queued), with
  `SubmitRefused` (it is definitely not), or raises `Transient`: unknown, so look for the job by its name before submitting again.
- A job's absence says nothing about how it ended. Queues forget; accounting lags or is down. Where the batch system reports nothing, the state
  is `unknown`, and the caller polls again.
- A secret never appears in an argument of a command.
- The batch system is shared with people: an adapter limits its rate, queries many jobs with one command, and bounds what it reads and
  how long it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from forestay.domain.sites.batch import BatchId, BatchJob, BatchOutcome, PilotJob, SubmitRefused


class BatchSubmitter(Protocol):
    """Submits pilot jobs to the queue and cancels them."""

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """Submit a pilot job under its name, never to be requeued.

        `SubmitRefused` distinguishes network down, scheduler down, scheduler up but refusing; in all three nothing was queued. `Transient`: the
        call broke off after it may have arrived. `Permanent`: the set-up is wrong (the submit command does not exist).
        """
        ...

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """Request their cancellation. Ended and unknown jobs are ignored; whether a job has ended is read by `outcome`.

        `Transient`: the request could not be made.
        """
        ...


class BatchReader(Protocol):
    """Reads the states of jobs from the batch system's queue and its accounting together."""

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """Every job with one of these names that the queue or the accounting knows, oldest first.

        A name that is left out was searched in both and found in neither: no such job was queued. When one of the two cannot be queried,
        `Transient` is raised; so a result without the name always means that it may be submitted.
        """
        ...

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """The outcome of each job, one entry for every requested id; `unknown` where the batch system does not say.

        Never raises `Transient`: a batch system that is down says nothing about any job. `ended` only if it reports so, so that what the
        pilot held may be released at once.
        """
        ...


class BatchSystem(BatchSubmitter, BatchReader, Protocol):
    """Submits and reads, for batch systems whose own commands do everything."""
