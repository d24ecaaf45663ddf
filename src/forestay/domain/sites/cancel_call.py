"""A call of the batch system's cancel command for users' own jobs, and the failures that it leaves final.

A batch system does nothing about a job that has ended already, and does not remember that somebody tried to cancel it. But a failed job is shown as running
until it is decided on, so its user may cancel it, and must be obeyed.
"""

from __future__ import annotations

from typing import NamedTuple

from forestay.domain.sites.batch import BatchOutcome
from forestay.domain.sites.watched_job import CLOCKS, JobDetails, WatchedJob

ROOT = 0
SIGNAL_TAKES = 60.0
"""Seconds after a signal for which an end is taken for its consequence. A cancelled job is reported as cancelled, but one that ends by a signal as failed."""


class JobSelector(NamedTuple):
    """Jobs that were named by id."""

    id: str
    """A job, or an array with all its elements."""
    first: int | None = None
    last: int | None = None
    """Only these elements of the array."""

    def covers(self, job: WatchedJob) -> bool:
        base, _, element = job.id.partition("_")
        if self.id != base:
            return False
        return self.first is None or self.last is None or (element != "" and self.first <= int(element) <= self.last)


class CancelCall(NamedTuple):
    """One call."""

    by: int
    """The uid of its caller."""
    at: float
    """Seconds since 1970, just before the call."""
    jobs: tuple[JobSelector, ...] = ()
    """None: all that the other conditions leave."""
    names: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    """Names or uids; none: any user's."""
    states: frozenset[str] = frozenset()
    """None: any."""
    signal: bool = False
    """It sends a signal that ends processes, instead of cancelling."""

    def covers(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> bool:
        """Whether this failure of a job is final, because its user, or root, cancelled the job when it was shown as running. Conditions that are not
        known here, such as a partition, count as met: it is safer not to run a job again."""
        if self.by not in (job.owner, ROOT) or not self._in_time(outcome):
            return False
        if self.states and not self.states & {"R", "RUNNING"}:
            return False
        if self.names and (details is None or details.name not in self.names):
            return False
        if self.users and not self.users & {str(job.owner), details.user if details is not None else ""}:
            return False
        own = job if details is None or not details.number else job._replace(id=details.number)
        return not self.jobs or any(selector.covers(named) for selector in self.jobs for named in (job, own))

    def _in_time(self, outcome: BatchOutcome) -> bool:
        """Whether the start that failed had begun, and had ended or was about to."""
        if outcome.started is not None and outcome.started > self.at + CLOCKS:
            return False
        return outcome.ended is None or outcome.ended <= self.at + (SIGNAL_TAKES if self.signal else CLOCKS)
