"""Long responses that notice at once when the caller has gone or the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forestay.apps.server.http.problems import HttpProblem, answer

T = TypeVar("T")
REFUSED_AFTER = 20.0
"""Seconds before a stream is refused because its caller has too many."""
ENDED = "forestay.ended"
"""The key in a request's scope for an awaitable that ends when the token is no longer valid, set by the check of the token."""


def event(name: str, data: object, *, number: str | None = None) -> bytes:
    """One event in the format of the stream."""
    head = f"id: {number}\n".encode() if number else b""
    return head + b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


class EventStream(Response):
    """Sends what a generator yields; closes the generator as soon as either side disconnects, or the token that opened it is no longer valid."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[bytes, None], stopping: asyncio.Event) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._source = source
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with scope["app"].state.context.callers.waiting(scope):
                await self._stream(scope, receive, send)
        except HttpProblem as refused:
            await self._source.aclose()
            # A caller with too many open streams retries at once, and each refusal would cost as much as an answer.
            waits = [asyncio.create_task(_until_gone(receive)), asyncio.create_task(self._stopping.wait())]
            await asyncio.wait(waits, timeout=REFUSED_AFTER, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await answer(refused.status_code, str(refused.detail), path=scope["path"])(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._send_all(send)),
            asyncio.create_task(_until_gone(receive)),
            asyncio.create_task(self._stopping.wait()),
        ]
        if ended := scope.get(ENDED):
            tasks.append(asyncio.create_task(ended()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._source.aclose()
        with suppress(OSError, RuntimeError):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        async for piece in self._source:
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_wanted(work: Coroutine[Any, Any, T], request: Request, stopping: asyncio.Event) -> T | None:
    """Continue only while someone waits for the answer and the server runs; None if the work was given up."""
    try:
        with request.app.state.context.callers.waiting(request.scope):
            return await _while_wanted(work, request.receive, stopping)
    finally:
        work.close()  # if the caller has too many already, it was never begun


async def _while_wanted(work: Coroutine[Any, Any, T], receive: Receive, stopping: asyncio.Event) -> T | None:
    task = asyncio.create_task(work)
    reasons = [asyncio.create_task(_until_gone(receive)), asyncio.create_task(stopping.wait())]
    try:
        await asyncio.wait([task, *reasons], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            return await task
        return None
    finally:
        for other_task in (task, *reasons):
            other_task.cancel()
        if not task.done():  # otherwise the client has the answer and waits for nothing more
            await asyncio.gather(task, return_exceptions=True)
