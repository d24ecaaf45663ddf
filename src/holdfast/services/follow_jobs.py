"""Tells whoever listens of every transition: those made here at once, those made elsewhere within a second or two."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.domain.jobs.job_document import JobDocument, Transition
from holdfast.ports.clock import Clock
from holdfast.ports.errors import PortError
from holdfast.ports.job_store import JobQuery, JobStore, Stored

QUEUE = 10_000
OVERLAP = 5_000
"""Milliseconds that each look goes back: clocks differ and searches lag."""
REMEMBER = 200_000


class News(NamedTuple):
    """One transition, and the job as it stood then."""

    document: JobDocument
    line: Transition


@dataclass(slots=True, eq=False)
class Listener:
    """Someone who listens; one that does not keep up is told so and let go."""

    wanted: Callable[[JobDocument], bool]
    queue: asyncio.Queue[News | None] = field(default_factory=lambda: asyncio.Queue(QUEUE))

    def tell(self, news: News) -> None:
        if not self.wanted(news.document):
            return
        try:
            self.queue.put_nowait(news)
        except asyncio.QueueFull:
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(None)


@dataclass(slots=True)
class FollowJobs:
    """The service; one a server."""

    store: JobStore
    clock: Clock
    every: float = 1.0
    _listeners: set[Listener] = field(default_factory=set)
    _told: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _from: int | None = None

    def notice(self, stored: Stored) -> None:
        """A document was written here."""
        if self._listeners:
            self._tell(stored.document)

    @asynccontextmanager
    async def listen(self, wanted: Callable[[JobDocument], bool]) -> AsyncIterator[Listener]:
        listener = Listener(wanted)
        if not self._listeners:
            self._from = self.clock.now() - OVERLAP
            self._told.clear()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def run(self) -> None:
        """Look for what other servers wrote, while anyone listens."""
        while True:
            if self._listeners:
                with suppress(PortError):
                    await self._look()
            await asyncio.sleep(self.every)

    async def _look(self) -> None:
        since = self._from or self.clock.now() - OVERLAP
        cursor: str | None = None
        newest = since
        while True:
            query = JobQuery(at_least={"changed": since})
            page = await self.store.search(query, sort="changed", limit=1000, cursor=cursor)
            for stored in page.jobs:
                newest = max(newest, stored.document.changed)
                self._tell(stored.document)
            cursor = page.cursor
            if cursor is None:
                break
        self._from = max(since, newest - OVERLAP)

    def _tell(self, document: JobDocument) -> None:
        told = self._told.get(document.id)
        if told is None:
            # Of a job not heard of before only the newest line is news.
            told = document.rev - 1
        for line in document.history:
            if line.rev > told:
                for listener in tuple(self._listeners):
                    listener.tell(News(document, line))
        self._told[document.id] = max(told, document.rev)
        self._told.move_to_end(document.id)
        while len(self._told) > REMEMBER:
            self._told.popitem(last=False)
