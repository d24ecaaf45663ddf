"""Publishes every transition of a job to subscribers: those made by this process at once, those of others within a second or two."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.jobs.job_document import JobDocument, Transition
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.services.jobs.job_submitter import NewJobListener
from forestay.services.shared.checked_writer import WriteListener

QUEUE = 10_000
OVERLAP = 5_000
"""Milliseconds by which each search overlaps the last: clocks differ and searches lag."""
REMEMBER = 200_000
OLDEST = 3_600_000
"""Milliseconds for which a broken stream can be resumed. A cursor comes from the caller, so what it makes a server read is bounded."""


class JobEvent(NamedTuple):
    """One transition, and the job at that time."""

    document: JobDocument
    line: Transition


class EventCursor(NamedTuple):
    """The last transition that a subscriber has received."""

    at: int
    job: str
    rev: int

    def __str__(self) -> str:
        return f"{self.at}:{self.job}:{self.rev}"

    @classmethod
    def read(cls, text: str) -> EventCursor:
        """Parse a cursor; `ValueError` for anything else."""
        at, job, rev = text.split(":")
        if not (at.isascii() and at.isdigit() and rev.isascii() and rev.isdigit() and len(at) < 16 and len(rev) < 16):
            raise ValueError("not an event id")
        return cls(int(at), job, int(rev))


@dataclass(slots=True, eq=False)
class Listener:
    """A subscriber; a slow one is informed and disconnected."""

    tenant: str
    wanted: Callable[[JobDocument], bool]
    queue: asyncio.Queue[JobEvent | None] = field(default_factory=lambda: asyncio.Queue(QUEUE))

    def tell(self, news: JobEvent) -> None:
        if news.document.tenant != self.tenant or not self.wanted(news.document):
            return
        try:
            self.queue.put_nowait(news)
        except asyncio.QueueFull:
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(None)


@dataclass(slots=True)
class JobEvents(WriteListener, NewJobListener):
    """The service; one a server."""

    store: JobStore
    clock: Clock
    every: float = 1.0
    alone: Callable[[], bool] = lambda: False
    """Whether no other server writes: then there is little to find, and each search reads again what was sent already."""
    every_alone: float = 5.0
    _listeners: set[Listener] = field(default_factory=set)
    _told: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _from: int | None = None
    _since: int = 0
    """When the first of the present listeners subscribed."""

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process."""
        if self._listeners:
            self._tell(stored.document)

    def created(self, jobs: Sequence[Stored]) -> None:
        """Called for jobs created in this process. Waiting jobs are published when they are found or claimed; a claim is published at once."""
        for stored in jobs if self._listeners else ():
            if stored.document.claim is not None:
                self._tell(stored.document)

    @asynccontextmanager
    async def listen(self, tenant: str, wanted: Callable[[JobDocument], bool]) -> AsyncIterator[Listener]:
        listener = Listener(tenant, wanted)
        if not self._listeners:
            self._since = self.clock.now()
            self._from = self._since - OVERLAP
            self._told.clear()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def too_old(self, mark: EventCursor) -> bool:
        """Whether a cursor is too old to be resumed."""
        return mark.at < self.clock.now() - OLDEST

    async def missed(self, mark: EventCursor, query: JobQuery) -> AsyncIterator[JobEvent]:
        """The transitions of a query's jobs since a cursor, as far as the store knows by now, and again those of the seconds just before it.

        The query names a tenant, so a listener cannot make the server read jobs of another one. It reaches back `OLDEST` at most.
        """
        await self.store.refresh()
        since = max(mark.at, self.clock.now() - OLDEST) - OVERLAP
        at_least = {**query.at_least, "changed": max(since, query.at_least.get("changed", since))}
        query, cursor = replace(query, at_least=at_least), None
        while True:
            page = await self.store.search(query, sort="changed", limit=1000, cursor=cursor)
            for document, _ in page.jobs:
                for line in document.history:
                    if line.at >= since and not (document.id == mark.job and line.rev <= mark.rev):
                        yield JobEvent(document, line)
            cursor = page.cursor
            if cursor is None:
                return

    async def run(self) -> None:
        """Search for writes of other servers, as long as there are listeners."""
        looked = self.clock.monotonic()
        while True:
            pause = self.every_alone if self.alone() else self.every
            if self._listeners and self.clock.monotonic() - looked > pause - self.every / 2:
                with suppress(PortError):
                    await self._look()
                looked = self.clock.monotonic()
            await asyncio.sleep(self.every)

    async def _look(self) -> None:
        since = self._from or self.clock.now() - OVERLAP
        newest = since
        for tenant in sorted({listener.tenant for listener in self._listeners}):
            query = JobQuery(tenant=tenant, at_least={"changed": since})
            cursor: str | None = None
            while True:
                page = await self.store.search(query, sort="changed", limit=1000, cursor=cursor)
                for stored in page.jobs:
                    newest = max(newest, stored.document.changed)
                    self._tell(stored.document)
                cursor = page.cursor
                if cursor is None:
                    break
        # A server whose clock is ahead must not make us skip what others write.
        self._from = max(since, min(newest, self.clock.now()) - OVERLAP)

    def _tell(self, document: JobDocument) -> None:
        revision = self._told.get(document.id)
        if revision is None:
            # For a job not seen before, the newest line is new, and so is everything since the first listener subscribed.
            older = [line.rev for line in document.history if line.at < self._since]
            revision = min(document.rev - 1, max(older, default=0))
        for line in document.history:
            if line.rev > revision:
                for listener in tuple(self._listeners):
                    listener.tell(JobEvent(document, line))
        self._told[document.id] = max(revision, document.rev)
        self._told.move_to_end(document.id)
        while len(self._told) > REMEMBER:
            self._told.popitem(last=False)
