"""The connection to a task server behind the proxy: a limited number of concurrent calls, and since when the server has not answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from forestay.domain.jobs.conversation import JOB_TAG, RELAY_TAG
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.insertion.task_service import Json, TaskService

T = TypeVar("T")
MOST_PAGES = 1000


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """How a relay treats its server. Times are in seconds."""

    most: int = 500
    """Tasks in progress at once."""
    at_once: int = 16
    """Concurrent calls."""
    quick: float = 0.05
    """Interval between polls while states change; it grows while nothing does."""
    notified: float = 2.0
    """The same, when the server was asked to call back for every task."""
    slow: float = 10.0
    settle: float = 2.0
    """How long a creation without a response may still arrive."""
    patience: float = 300.0
    """How long a server may be silent before its tasks are given up."""
    check: float = 2.0
    """Interval between checks whether the claims are still held."""
    image: str = "docker.io/library/alpine:3"
    """For jobs that name no container."""
    callback: Callable[[str], str] | None = None
    """The address at which the server can report that the task of a job is over; None: no callbacks."""


class TaskServerConnection:
    """One server."""

    def __init__(
        self,
        service: TaskService,
        clock: Clock,
        policy: ProxyPolicy,
        on_event: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self.service = service
        self.clock = clock
        self.policy = policy
        self.told = on_event
        self._calls = asyncio.Semaphore(policy.at_once)
        self._silent_since: float | None = None
        self._wait = 0.0

    @property
    def answers(self) -> bool:
        """Whether it answered the last call."""
        return self._silent_since is None

    @property
    def silent(self) -> float:
        """Seconds for which it has not answered."""
        return 0.0 if self._silent_since is None else self.clock.monotonic() - self._silent_since

    def doubt(self) -> None:
        """Treat the server as silent until it answers."""
        self._silent_since = self.clock.monotonic()

    async def call(self, asking: Coroutine[Any, Any, T]) -> T:
        """Make one of a limited number of concurrent calls; records whether the server answers."""
        async with self._calls:
            try:
                answer = await asking
            except Transient:
                if self._silent_since is None:
                    self._silent_since = self.clock.monotonic()
                self._wait = min(self.policy.slow, max(0.25, 2 * self._wait))
                raise
            except PortError:
                self._answered()
                raise
            self._answered()
            return answer

    def _answered(self) -> None:
        if self._silent_since is not None:
            self.told("the task server responds", {"silent": round(self.silent, 1)})
        self._silent_since, self._wait = None, 0.0

    async def rest(self) -> None:
        """Pause before the next call to a server that did not answer."""
        await asyncio.sleep(max(0.1, self._wait) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def answering(self, tenant: str) -> None:
        """Probe a silent server with a small request, less and less often, until it answers."""
        await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        with suppress(PortError):
            await self.call(self.service.listed(tags={RELAY_TAG: tenant}, size=1))

    async def tasks_of(self, job: str) -> list[Json]:
        """All tasks that the server has for a job, with their tags. A server that does not filter is read completely."""
        tasks: list[Json] = []
        page = ""
        for _ in range(MOST_PAGES):
            listed = await self.call(self.service.listed(tags={JOB_TAG: job}, full=True, page=page))
            tasks += [task for task in listed.tasks if tags_in(task).get(JOB_TAG) == job]
            page = listed.next
            if not page:
                break
        return tasks

    async def cancel(self, task: str) -> None:
        """Cancel a task, repeatedly until the server has answered, within the patience."""
        began = self.clock.monotonic()
        while self.clock.monotonic() - began < self.policy.patience:
            try:
                await self.call(self.service.cancel(task))
            except Transient:
                await self.rest()
            except PortError:
                return  # it is gone, or over
            else:
                return


def tags_in(task: Mapping[str, Any]) -> Mapping[str, Any]:
    tags = task.get("tags")
    return tags if isinstance(tags, dict) else {}
