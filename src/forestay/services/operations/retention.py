"""How long everything is kept that is stored, and in which order the reconcilers remove it.

`keep_days` turns retention on. The other periods then count too; none is shorter than that of the jobs, since what belongs to a job is kept as long as the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

DAY = 86_400_000
BULK = 500
"""Documents that are removed in one write."""


class Cutoffs(NamedTuple):
    """What ended, or was last used, before these times (milliseconds since 1970) is removed; None: nothing of this sort is."""

    jobs: int | None = None
    incidents: int | None = None
    keys: int | None = None
    audit: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """The periods in days; 0: for ever."""

    jobs: int = 0
    incidents: int = 0
    keys: int = 0
    audit: int = 0

    def cutoffs(self, now: int) -> Cutoffs:
        if not self.jobs:
            return Cutoffs()

        def cutoff(days: int) -> int | None:
            return now - max(days, self.jobs) * DAY if days else None

        return Cutoffs(now - self.jobs * DAY, cutoff(self.incidents), cutoff(self.keys), cutoff(self.audit))
