"""Follows the completions of many jobs by one event stream, and resolves the future that waits for each.

Events are hints, as in `waiting`: the jobs themselves are read when a stream opens, and now and then.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import orjson

from forestay.client.api import calls
from forestay.client.api.answers import FINAL
from forestay.client.api.calls import Filters
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.api.waiting import ASK_EVERY, MOST_VALUES
from forestay.client.transport.connection import HangUp
from forestay.client.transport.errors import ApiError, ClientError, NotFoundError, Unavailable

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

PAUSE = 1.0
"""Seconds before a stream that broke is opened again."""
EARLY = 20_000
"""Ends kept of jobs that are not known yet: the answer to their submission is still on its way."""
MANY = 1000
"""So many jobs are read by their ids; more are found by what they have in common."""


class CompletionListener(Protocol):
    """What waits for the end of a job: a future, or several that share it."""

    def done(self) -> bool: ...

    def ended(self, job: Job) -> None: ...

    def refused(self, error: BaseException) -> None: ...


class CompletionWatch:
    """One stream of ends, and the futures that wait for them."""

    def __init__(self, client: ForestayClient, filters: Filters, *, name: str) -> None:
        self._client = client
        self._filters: Filters = {**filters, "state": sorted(FINAL)}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._open: dict[str, CompletionListener] = {}
        self._early: OrderedDict[str, Job] = OrderedDict()
        self._hang_up = HangUp()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = False

    def add(self, futures: Mapping[str, CompletionListener]) -> None:
        """Wait for the ends of these jobs, too."""
        ended: list[tuple[CompletionListener, Job]] = []
        with self._changed:
            for job, future in futures.items():
                early = self._early.pop(job, None)
                if early is not None:
                    ended.append((future, early))
                elif not future.done():
                    self._open[job] = future
            if not self._begun:
                self._begun = True
                self._thread.start()
            self._changed.notify_all()
        for future, job_read in ended:
            future.ended(job_read)

    def drop(self, job: str) -> None:
        """Nobody waits for this one any more."""
        with self._changed:
            self._open.pop(job, None)

    def close(self) -> None:
        """Watch no longer."""
        self._hang_up.now()
        with self._changed:
            self._changed.notify_all()
        if self._begun and threading.current_thread() is not self._thread:
            self._thread.join(10)

    def _run(self) -> None:
        while not self._hang_up.done:
            with self._changed:
                self._changed.wait_for(lambda: self._open or self._hang_up.done)
            try:
                self._follow()
            except Unavailable:
                pass
            except ClientError as error:
                if isinstance(error, ApiError) and error.status in {401, 403}:
                    self._give_up(error)
            with self._changed:
                self._changed.wait_for(lambda: self._hang_up.done, PAUSE)

    def _follow(self) -> None:
        """Read one stream until it breaks."""
        with self._client.stream(calls.events(self._filters), silence=ASK_EVERY, hang_up=self._hang_up) as stream:
            self._ask()
            asked = time.monotonic()
            for event in stream:
                if event.name == "job":
                    self._take([orjson.loads(event.data)["job"]])
                if self._hang_up.done:
                    return
                if time.monotonic() - asked > ASK_EVERY:
                    self._ask()
                    asked = time.monotonic()

    def _take(self, jobs: list[Job]) -> None:
        ended: list[tuple[CompletionListener, Job]] = []
        with self._lock:
            for job in jobs:
                if job["state"] not in FINAL:
                    continue
                future = self._open.pop(job["id"], None)
                if future is not None:
                    ended.append((future, job))
                else:
                    self._early[job["id"]] = job
                    if len(self._early) > EARLY:
                        self._early.popitem(last=False)
        for future, job in ended:
            future.ended(job)

    def _ask(self) -> None:
        """Read the awaited jobs: some may have ended while the stream was closed."""
        with self._lock:
            names = list(self._open)
        if len(names) > MANY:
            self._take(list(self._client.all_jobs(self._filters)))
            return
        for begin in range(0, len(names), MOST_VALUES):
            some = names[begin : begin + MOST_VALUES]
            self._take(list(self._client.all_jobs({"id": some, "state": sorted(FINAL)})) if len(some) > 1 else [])
            if len(some) == 1:
                self._read(some[0])

    def _read(self, job: str) -> None:
        try:
            self._take([self._client.job(job)])
        except NotFoundError as error:
            with self._lock:
                future = self._open.pop(job, None)
            if future is not None:
                future.refused(error)

    def _give_up(self, error: ApiError) -> None:
        """Fail all waiting futures because the token is no longer valid; the jobs continue."""
        with self._lock:
            waiting, self._open = self._open, {}
        for future in waiting.values():
            future.refused(error)
