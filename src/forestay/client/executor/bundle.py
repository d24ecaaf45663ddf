"""Several short calls as one job.

A call of a millisecond costs more on its way than where it runs. So calls that are known to be short, by those of the same function that have ended, go many in one
job; each has its own future, its own result and its own exception all the same. What a process pool says of its worker holds for a bundle: a call that
brings its interpreter down takes those of its bundle along.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from forestay.client.api.answers import FINAL
from forestay.client.executor.job_future import JobFuture
from forestay.client.executor.results import bundle_of
from forestay.client.transport.errors import ClientError

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job, NewJob

MOST = 32
"""Calls in a bundle."""
WHOLE = 0.1
"""Seconds that a bundle may take, by what its calls took before: others wait as long for their turn."""
ROOM = 3_000
"""Characters of its results, which go with its end as long as they are few."""
HEARD = 8
"""Calls of a function that must have ended before any are put together."""
WORTH = 64
"""The number of waiting calls from which bundling is worthwhile: with fewer, each gets a job of its own."""
_FUNCTIONS = 1_000


class CallDurations:
    """How long calls of each function take, and how much they give back; what the longest of the last ones did counts."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, name: str, job: Job, calls: int = 1) -> None:
        """Record the end of a job of this many calls."""
        last = job.get("last") or {}
        wall, result = last.get("wall"), last.get("result")
        if job["state"] not in FINAL or wall is None:
            return
        with self._lock:
            known = self._known.setdefault(name, deque(maxlen=2 * HEARD))
            known.append((wall / calls, len(result or "") // calls))
            self._known.move_to_end(name)
            while len(self._known) > _FUNCTIONS:
                self._known.popitem(last=False)

    def fitting(self, name: str) -> int:
        """How many calls of a function may go together."""
        with self._lock:
            known = self._known.get(name)
            if known is None or len(known) < HEARD:
                return 1
            wall, result = max(value for value, _ in known), max(number for _, number in known)
        return max(1, min(MOST, int(WHOLE / max(wall, 1e-6)), ROOM // (result + 1)))


class Bundle:
    """The calls of one job; to the completion watch it looks like the future of that job."""

    def __init__(self, name: str, calls: Sequence[tuple[NewJob, JobFuture[Any]]], lengths: CallDurations) -> None:
        self.name = name
        self.futures = [future for _, future in calls]
        self._lengths = lengths
        first: dict[str, Any] = dict(calls[0][0])
        each = [job["parameters"]["call"] for job, _ in calls]
        self.job: NewJob = (
            first
            | {  # type: ignore[assignment]
                "name": f"{len(calls)} × {name}"[:200],
                "parameters": {"call": {"each": each}},
            }
        )

    def accepted(self, job: str) -> None:
        for place, future in enumerate(self.futures):
            future.accepted(f"{job}/{place}", alone=False)

    def refused(self, error: BaseException) -> None:
        for future in self.futures:
            future.refused(error)

    def done(self) -> bool:
        return all(future.done() for future in self.futures)

    def ended(self, job: Job) -> None:
        self._lengths.note(self.name, job, len(self.futures))
        try:
            outcomes: Sequence[Any] = bundle_of(job, len(self.futures))
        except ClientError:
            for future in self.futures:
                future.ended(job)
            return
        for future, outcome in zip(self.futures, outcomes, strict=True):
            future.settled(outcome)


class SingleCall:
    """The call of one job."""

    def __init__(self, name: str, job: NewJob, future: JobFuture[Any], lengths: CallDurations) -> None:
        self.name = name
        self.job = job
        self.future = future
        self._lengths = lengths

    def accepted(self, job: str) -> None:
        self.future.accepted(job)

    def refused(self, error: BaseException) -> None:
        self.future.refused(error)

    def done(self) -> bool:
        return self.future.done()

    def ended(self, job: Job) -> None:
        self._lengths.note(self.name, job)
        self.future.ended(job)


class BundledCall:
    """One call of a bundle, for someone who attaches to it."""

    def __init__(self, future: JobFuture[Any], place: int) -> None:
        self.future = future
        self.place = place

    def refused(self, error: BaseException) -> None:
        self.future.refused(error)

    def done(self) -> bool:
        return self.future.done()

    def ended(self, job: Job) -> None:
        try:
            self.future.settled(bundle_of(job)[self.place])
        except (ClientError, IndexError):
            self.future.ended(job)


def bundled(
    calls: Sequence[tuple[NewJob, JobFuture[Any]]], lengths: CallDurations, *, may: bool
) -> Iterator[SingleCall | Bundle]:
    """What is sent: calls of the same function one after the other together, if they may be and if that is worth while."""
    at = 0
    while at < len(calls):
        name = calls[at][0]["name"] or ""
        most = lengths.fitting(name) if may and len(calls) >= WORTH else 1
        end = at + 1
        while end < len(calls) and end - at < most and calls[end][0]["name"] == name:
            end += 1
        if end - at == 1:
            yield SingleCall(name, *calls[at], lengths)
        else:
            yield Bundle(name, calls[at:end], lengths)
        at = end
