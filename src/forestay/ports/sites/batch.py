"""The batch system of a site: submits pilots and reports their states.

The law:

- A submission that may have gone through is never repeated blindly. `submit` answers with an id (it is queued), with
  `SubmitRefused` (it is not, for sure), or raises `Transient`: nobody knows, so look for the job by its name before asking again.
- A job's absence says nothing of how it ended. Queues forget; accounting lags or is down. Where the batch system gives no word, the state
  is `unknown`, and the caller asks again.
- A secret never stands in an argument of a command.
- The batch system is shared with people: an adapter keeps to a pace, asks for many jobs by one command, and bounds what it reads and
  how long it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from forestay.domain.sites.batch import BatchId, BatchJob, BatchOutcome, PilotJob, SubmitRefused


class BatchSubmitter(Protocol):
    """Who puts pilot jobs into the queue and takes them out."""

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """Queue a pilot job, never to be requeued, under its name.

        `SubmitRefused` tells apart network down, scheduler down, scheduler up but refusing; in all three nothing was queued. `Transient`: the
        call broke off after it may have arrived. `Permanent`: the set-up is wrong (the submit command is not there).
        """
        ...

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """Ask for their end. Those that are over or not known are passed by; that they are over must be read by `outcome`.

        `Transient`: it could not be asked.
        """
        ...


class BatchReader(Protocol):
    """Who reads the batch system's word, from its queue and its accounting together."""

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """Every job with one of these names that queue or accounting know, the oldest first.

        A name that is left out was looked for in both and found in neither: no such job was queued. When one of the two cannot be asked for it,
        `Transient` is raised; so an answer without the name always means that it may be submitted.
        """
        ...

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """What became of each, one entry for every id that was asked for; `unknown` where the batch system does not say.

        Never raises `Transient`: a batch system that is down says nothing of any job. `ended` only by its word, so that what the
        pilot held may be released at once.
        """
        ...


class BatchSystem(BatchSubmitter, BatchReader, Protocol):
    """Both, for batch systems whose own commands do everything."""
