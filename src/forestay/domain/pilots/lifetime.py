"""Whether a job can complete in the remaining lifetime of a pilot: if not, the pilot does not get it.

A job's own wall limit says how long it may run. Without one, its expected run time is used; without that either, a few minutes
are assumed. An earlier attempt counts as well: a job that was stopped after an hour because its pilot had to
stop needs more than an hour, whatever it states.
"""

from __future__ import annotations

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
    return needed


def ends_in_time(document: JobDocument, left: int | None) -> bool:
    """Whether a pilot with this many seconds left may be given a job; None: it has no end."""
    return left is None or time_needed(document) <= left
