"""The line between a server and its store, which a test can cut and fix."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.unit.apps.server.running import Domain


@dataclass(eq=False)
class Line:
    """A forwarder of bytes on a port of its own."""

    target: tuple[str, int]
    port: int = 0
    is_cut: bool = False
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        there_reader, there_writer = await asyncio.open_connection(*self.target)
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(65_536):
                sink.write(piece)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)

    def cut(self) -> None:
        """Break every connection and refuse new ones."""
        self.is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def recover(self) -> None:
        self.is_cut = False

    async def close(self) -> None:
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def line_to_store(domain: Domain) -> AsyncIterator[tuple[Domain, Line]]:
    """The same domain, with its store reached over a line of the test's own."""
    parts = urlsplit(domain.store)
    assert parts.hostname, "a store that is a file has no line"
    assert parts.port
    line = Line((parts.hostname, parts.port))
    listener = await asyncio.start_server(line.connected, "127.0.0.1", 0)
    line.port = listener.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    netloc = f"{user}@127.0.0.1:{line.port}" if user else f"127.0.0.1:{line.port}"
    short = parts.query.replace("timeout=30", "timeout=3")
    try:
        yield Domain(parts._replace(netloc=netloc, query=short).geturl(), domain.state, domain.defaults), line
    finally:
        listener.close()
        await line.close()
