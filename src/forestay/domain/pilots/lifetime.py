"""Whether a job can complete in the remaining lifetime of a pilot: if not, the pilot does not get it.

A job's own wall limit says how long it may run. Without one, how long it is expected to run; without that either, it is taken to
need a few minutes. What an earlier attempt showed counts as well: a job that was stopped after an hour because its pilot had to
go needs more than an hour, whatever it says. A job that continues from checkpoints needs no more than the time for the next one.
"""

from __future__ import annotations

from forestay.domain.jobs.checkpoint import seconds_to_progress
from forestay.domain.jobs.claim import PILOT_STOPPED
from forestay.domain.jobs.job_document import JobDocument

ASSUMED = 300
"""The seconds that a job is assumed to need if nothing is known."""


def time_needed(document: JobDocument) -> int:
    """The fewest seconds that a pilot must have left to be given a job."""
    needed = document.resources.wall
    if needed is None:
        needed = ASSUMED if document.expected_runtime is None else document.expected_runtime
        last = document.last
        if last is not None and last.reason == PILOT_STOPPED and last.wall is not None:
            needed = max(needed, int(last.wall) + 1)
    to_progress = seconds_to_progress(document)
    return needed if to_progress is None else min(needed, to_progress)


def ends_in_time(document: JobDocument, left: int | None) -> bool:
    """Whether a pilot with this many seconds left may be given a job; None: it has no end."""
    return left is None or time_needed(document) <= left
