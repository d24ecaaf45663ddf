"""Waits until jobs have ended, or have reached a state: by events and occasional polling.

Events tell at once. They are only hints: a stream may break, a server may be replaced. So the jobs themselves are read
when the stream is opened, after every break, and every half minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from forestay.client.api import calls
from forestay.client.api.answers import FINAL, WELL
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.transport.errors import ApiError, TimedOut, Unavailable
from forestay.client.transport.event_stream import StreamEvent

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

ASK_EVERY = 30.0
"""Seconds between two readings of all jobs while the stream is open."""
ASK_EVERY_WITHOUT_STREAM = 2.0
ONE_BY_ONE = 5
"""So many jobs are read one by one; more are found by search."""
MOST_VALUES = 100
"""Values that one filter may have."""


@dataclass(slots=True)
class WaitedJobs:
    """Jobs that are waited for, and what is known of them."""

    jobs: Sequence[str]
    states: frozenset[str] = FINAL
    attempts: int = 0
    """To wait for running means for an attempt after this one."""
    known: dict[str, Job] = field(default_factory=dict)
    _open: dict[str, None] = field(init=False)

    def __post_init__(self) -> None:
        self._open = dict.fromkeys(self.jobs)

    def see(self, job: Job) -> bool:
        """Take note of a job; True if that changed what is known. Other jobs and older readings are passed over."""
        name = job["id"]
        before = self.known.get(name)
        if name not in self._open or (before is not None and job["changed"] < before["changed"]):
            return False
        self.known[name] = job
        if self.arrived(job):
            del self._open[name]
        return before is None or before["state"] != job["state"] or before["held"] != job["held"]

    def arrived(self, job: Job) -> bool:
        """Whether a job is where it was waited for, or can come there no more."""
        return job["state"] in FINAL or self._reached(job)

    def ended_well(self, job: Job) -> bool:
        """Whether a job that has arrived came to what was waited for; one that should just end, well."""
        return job["state"] in WELL if self.states == FINAL else self._reached(job)

    def _reached(self, job: Job) -> bool:
        return job["state"] in self.states or ("running" in self.states and job["attempt"] > self.attempts)

    @property
    def over(self) -> bool:
        """Whether every job has arrived."""
        return not self._open

    @property
    def open(self) -> list[str]:
        """Those that are still waited for."""
        return list(self._open)


def wait(
    client: ForestayClient,
    jobs: Sequence[str],
    *,
    states: Iterable[str] = FINAL,
    attempts: int = 0,
    timeout: float | None = None,
    changed: Callable[[WaitedJobs, Job], None] = lambda _, __: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> WaitedJobs:
    """Wait until every job is in one of the states or final. `TimedOut` if that takes longer than `timeout` seconds.

    Waiting never changes a job, and may be given up at any time.
    """
    waiting = WaitedJobs(jobs, frozenset(states), attempts)
    deadline = None if timeout is None else clock() + timeout

    def left() -> float:
        return float("inf") if deadline is None else deadline - clock()

    def take(found_jobs: Iterable[Job]) -> None:
        for job in found_jobs:
            if waiting.see(job):
                changed(waiting, job)

    def ask() -> None:
        with suppress(Unavailable):  # an outage of the server is waited out like everything else
            take(read_jobs(client, waiting.open))

    last_id = ""
    take(read_jobs(client, waiting.open))
    while not waiting.over:
        if left() <= 0:
            raise TimedOut(_late(waiting))
        silence = max(0.1, min(ASK_EVERY, left()))
        try:
            with client.stream(_events(waiting), last_id=last_id, silence=silence) as stream:
                ask()
                asked = clock()
                for event in () if waiting.over else stream:
                    last_id = event.id
                    take(_jobs_in(event))
                    if waiting.over or left() <= 0:
                        break
                    if clock() - asked > ASK_EVERY:
                        ask()
                        asked = clock()
        except Unavailable:
            pass
        except ApiError as error:
            if error.status in {401, 403}:
                raise
        if not waiting.over and left() > 0:
            sleep(min(ASK_EVERY_WITHOUT_STREAM, left()))
            ask()
    return waiting


def _late(waiting: WaitedJobs) -> str:
    late = waiting.open
    if len(waiting.jobs) == 1:
        return f"the job is {waiting.known[late[0]]['state']} still"
    return f"{len(late):,} of {len(frozenset(waiting.jobs)):,} jobs are not finished yet"


def _events(waiting: WaitedJobs) -> calls.Call[None]:
    """A stream with as little beside our own jobs as the interface can sort out."""
    if len(waiting.open) <= MOST_VALUES:
        return calls.events({"id": waiting.open})
    specifications = {waiting.known[name]["specification"] for name in waiting.open if name in waiting.known}
    narrow = 0 < len(specifications) <= MOST_VALUES
    return calls.events({"specification": sorted(specifications)} if narrow else {})


def _jobs_in(event: StreamEvent) -> list[Job]:
    if event.name != "job":
        return []
    try:
        return [orjson.loads(event.data)["job"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []  # the jobs themselves are read in any case


def read_jobs(client: ForestayClient, names: Sequence[str]) -> Iterator[Job]:
    """Read many jobs with few requests. A job of which a search knows nothing yet is read by itself.

    `NotFound` if one does not exist.
    """
    for begin in range(0, len(names), MOST_VALUES):
        left = dict.fromkeys(names[begin : begin + MOST_VALUES])
        if len(left) > ONE_BY_ONE:
            for job in client.all_jobs({"id": list(left)}):
                left.pop(job["id"], None)
                yield job
        for name in left:
            yield client.job(name)
