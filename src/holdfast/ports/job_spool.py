"""The words that users' own batch jobs leave of themselves, on the machine where they were submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.domain.pilots.watched_job import PayloadRecord, WatchedJob


class JobSpool(Protocol):
    """The port. What it cannot read is passed over: a word that is broken costs nobody else's."""

    def jobs(self) -> Sequence[WatchedJob]:
        """Every word that has not been settled, the oldest first. Anyone can leave one in the name of any job: it counts only if its
        owner is the job's user, which the batch system knows."""
        ...

    def discard(self, job: WatchedJob) -> None:
        """Remove this word alone; other words of the same job stay."""
        ...

    def settle(self, job: WatchedJob) -> None:
        """Nothing more comes of it: from now on it is shown as its batch system tells it."""
        ...

    def vouch(self, seconds: float) -> None:
        """For so long somebody looks after the jobs here: one that has failed is shown as running meanwhile. 0: nobody does."""
        ...

    def record(self, job: WatchedJob, restarts: int) -> PayloadRecord | None:
        """What that start of the job wrote down of itself; None where it did not, or what is there is not its owner's."""
        ...

    def tail(self, path: str, owner: int) -> str:
        """The end of what a job printed; empty if it is not a plain file of its owner, or cannot be read."""
        ...
