"""Hosts that behave as badly as a test asks, for the OpenSearch adapter."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import orjson

CLUSTER_WELL = {"discovered_cluster_manager": True}


class BadHost:
    """Takes requests, remembers them, and answers with a status, a body, silence or a closed connection."""

    def __init__(self, status: int = 200, answer: object = None) -> None:
        self.status = status
        self.answer: object = {} if answer is None else answer
        self.closes = False
        self.silent = False
        self.requests: list[str] = []
        self.probed = asyncio.Event()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    async def listen(self) -> None:
        """Take connections, at the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def leave(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = [line.split(":")[1] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
        await reader.readexactly(int(length[0]) if length else 0)
        target = head.split(" ")[1]
        if target.startswith("/_cluster/health"):
            self.probed.set()
            body = orjson.dumps(CLUSTER_WELL)
            status = 200
        else:
            self.requests.append(target)
            if self.closes:
                return False
            if self.silent:
                await reader.read()
                return False
            body, status = orjson.dumps(self.answer), self.status
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        return True
