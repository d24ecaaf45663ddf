"""The remaining lifetime of a pilot: its allocation ends at a time set by the batch system.

The last part of it, the margin, is for going in order: nothing is claimed in it, what still runs is told to end while there is
time for it to do so, and the ends are delivered.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

from forestay_pilot.clock import steady

log = logging.getLogger("forestay_pilot")

_ENDS_AT = ("SLURM_JOB_END_TIME", "FORESTAY_END_TIME")  # seconds since 1970
_LASTS = ("PBS_WALLTIME", "OAR_JOB_WALLTIME_SECONDS")  # seconds from the start of the batch job, which is about now
_JOB_NAMES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID", "JOB_ID")
_DELIVERY = 5.0  # seconds that ends need


class Lifetime:
    """The time left, on the steady clock."""

    def __init__(self, left: float | None, *, margin: float, grace: float) -> None:
        self._until = None if left is None else steady() + left
        # A payload that uses all of its grace must be gone, and its completion sent, before the allocation ends.
        self._stop_before = min(margin, max(margin / 2, grace + _DELIVERY))
        self._margin = margin
        if left is not None and margin < grace + _DELIVERY:
            log.warning("a margin of %.0f s is too short for a grace of %.0f s", margin, grace)

    def left(self) -> float | None:
        """Seconds until the allocation ends; nothing if it does not."""
        return None if self._until is None else self._until - steady()

    def usable(self) -> float | None:
        """Seconds in which jobs may run."""
        left = self.left()
        return None if left is None else max(0.0, left - self._margin)

    def over(self) -> bool:
        """Whether no further job may begin."""
        return self.usable() == 0.0

    def enough_for(self, wall: float | None) -> bool:
        """Whether a job with this wall limit can run to its end; one without a limit may always begin."""
        left = self.left()
        return left is None or wall is None or wall <= left - self._stop_before

    def must_stop(self, grace: float = 0.0) -> bool:
        """Whether what runs has to be told to end; what needs so long to write its checkpoint is told earlier, so that it can be committed."""
        left = self.left()
        before = max(self._stop_before, grace + self._margin / 2) if grace else self._stop_before
        return left is not None and left < before


def told_by_batch_system(variables: Mapping[str, str] | None = None) -> float | None:
    """Seconds that are left as the batch system's variables have it; nothing where they say nothing."""
    known = os.environ if variables is None else variables
    ends = [ends - time.time() for ends in _numbers(known, _ENDS_AT)] + _numbers(known, _LASTS)
    return max(0.0, min(ends)) if ends else None


def least(*times: float | None) -> float | None:
    """The shortest of those that are known."""
    known = [other_time for other_time in times if other_time is not None]
    return min(known) if known else None


def batch_job_name(variables: Mapping[str, str] | None = None) -> str | None:
    """What the batch system calls the job that this pilot is."""
    known = os.environ if variables is None else variables
    return next((known[name] for name in _JOB_NAMES if known.get(name)), None)


def _numbers(variables: Mapping[str, str], names: tuple[str, ...]) -> list[float]:
    texts = []
    for name in names:
        text = variables.get(name)
        if text:
            try:
                texts.append(float(text))
            except ValueError:
                log.warning("%s is not a number of seconds", name)
    return texts
