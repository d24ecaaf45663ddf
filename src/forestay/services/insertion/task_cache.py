"""Remembers the jobs of tasks as this server wrote or read them a moment ago: clients ask for the same few tasks again and again.

Whatever is written through this server is seen at once. What someone else wrote, a reconciler or another server, is seen after ``FRESH`` at the latest; the
jobs that a relay holds are read together every few seconds in any case, so that no poll for one of them needs a read of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.formats.ga4gh.tes_job import MARK, TASK
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import Stored
from forestay.services.jobs.job_submitter import NewJobListener

FRESH = 3.0
"""Seconds; a little more than lie between two looks of a relay at what it holds."""
MOST = 2_000


class _CachedTask(NamedTuple):
    since: float
    """So it was at this moment at least."""
    stored: Stored


@dataclass(slots=True)
class TaskCache(NewJobListener):
    """The memory of one server."""

    clock: Clock
    _known: OrderedDict[str, _CachedTask] = field(default_factory=OrderedDict)

    def recall(self, job: str) -> Stored | None:
        """The job as it was a moment ago, if that is known."""
        known = self._known.get(job)
        return known.stored if known is not None and self.clock.monotonic() - known.since <= FRESH else None

    def notice(self, stored: Stored) -> None:
        """It was written here, just now."""
        self._put(stored, self.clock.monotonic())

    def created(self, jobs: Sequence[Stored]) -> None:
        for stored in jobs:
            self.notice(stored)

    def seen(self, jobs: Sequence[Stored], since: float) -> None:
        """They were read by a question that was asked then: what was written here meanwhile is newer."""
        for stored in jobs:
            known = self._known.get(stored.document.id)
            if known is None or known.since < since:
                self._put(stored, since)

    def _put(self, stored: Stored, since: float) -> None:
        job = stored.document.id
        if stored.document.labels.get(MARK) != TASK:
            return
        self._known[job] = _CachedTask(since, stored)
        self._known.move_to_end(job)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
