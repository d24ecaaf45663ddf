"""A real HTTP listener that callbacks are sent to, and that answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.unit.apps.server.connections import connections


@dataclass(frozen=True)
class Delivered:
    """One notification as it came."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass(eq=False)
class Listener:
    """Answers by a script: one entry a request, the last one for ever. A number is a status, other words a failure."""

    script: Sequence[int | str] = (200,)
    port: int = 0
    seen: list[Delivered] = field(default_factory=list)

    def url(self, path: str = "/done") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError), closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            answer = self.script[min(len(self.seen), len(self.script) - 1)]
            self.seen.append(Delivered(head[0].split(" ")[1], headers, json.loads(body)))
            await self._answer(writer, answer)

    async def _answer(self, writer: asyncio.StreamWriter, answer: int | str) -> None:
        if answer == "hang":
            await asyncio.sleep(3600)
        elif answer == "huge":
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for _ in range(1 << 20):
                writer.write(b"x" * 65_536)
                await writer.drain()
        elif answer == "redirect":
            writer.write(
                f"HTTP/1.1 307 Elsewhere\r\nLocation: {self.url('/elsewhere')}\r\nContent-Length: 0\r\n\r\n".encode()
            )
        elif answer != "cut":
            writer.write(f"HTTP/1.1 {answer} Said\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()


@asynccontextmanager
async def listen(*script: int | str) -> AsyncIterator[Listener]:
    listener = Listener(script or (200,))
    async with connections(listener.connected) as listener.port:
        yield listener
