"""Reads a stream of server-sent events in the background."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

PATIENCE = 180.0


@dataclass(frozen=True)
class SentEvent:
    """One event as it came."""

    name: str
    data: Any
    id: str | None


@dataclass(eq=False)
class EventReader:
    """The events of one stream, in order, and whether it has ended."""

    response: httpx.Response
    events: list[SentEvent] = field(default_factory=list)
    ended: bool = False
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def read(self) -> None:
        parts: dict[str, str] = {}
        try:
            async for line in self.response.aiter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    parts[name] = value
                elif parts:
                    await self._add(SentEvent(parts["event"], json.loads(parts["data"]), parts.get("id")))
                    parts = {}
        except httpx.HTTPError:
            pass  # a broken stream has ended, too
        finally:
            self.ended = True
            async with self._news:
                self._news.notify_all()

    async def _add(self, event: SentEvent) -> None:
        async with self._news:
            self.events.append(event)
            self._news.notify_all()

    def named(self, name: str) -> list[SentEvent]:
        return [event for event in self.events if event.name == name]

    async def wait_for(
        self, name: str, fits: Callable[[Any], bool] = lambda _data: True, patience: float = PATIENCE
    ) -> SentEvent:
        """The first event of that name whose data fits."""

        def found() -> SentEvent | None:
            return next((event for event in self.named(name) if fits(event.data)), None)

        async with asyncio.timeout(patience), self._news:
            await self._news.wait_for(lambda: found() or self.ended)
        event = found()
        assert event is not None, f"the stream ended without such a {name!r}: {self.events}"
        return event

    async def wait_for_end(self, patience: float = PATIENCE) -> None:
        async with asyncio.timeout(patience), self._news:
            await self._news.wait_for(lambda: self.ended)


@asynccontextmanager
async def read_events(
    client: httpx.AsyncClient, path: str, *, headers: dict[str, str] | None = None, **params: Any
) -> AsyncIterator[EventReader]:
    """Open a stream and read it in the background until the block is left."""
    async with client.stream(
        "GET", path, params=params, headers=headers, timeout=httpx.Timeout(10, read=None)
    ) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        reader = EventReader(response)
        task = asyncio.create_task(reader.read())
        try:
            yield reader
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
