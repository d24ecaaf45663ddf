"""What every request passes first: bounds on its size and its time, the headers of every answer, and a stop watch."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.adapters.prometheus.metrics import Metrics
from holdfast.apps.server import problems
from holdfast.apps.settings import Settings

HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
"""A browser must not guess what an answer is, and nobody between may keep it."""


class Gate:
    """Refuses bodies that are too large or too slow, whatever they say of themselves, and measures each request."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics) -> None:
        self.app = app
        self.most = settings.max_body
        self.seconds = settings.body_seconds
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        size = 0
        whole = False

        async def bounded() -> Message:
            nonlocal size, whole
            if whole:  # what comes now is that the client is gone; that may take long
                return await receive()
            try:
                async with asyncio.timeout(started + self.seconds - time.perf_counter()):
                    message = await receive()
            except TimeoutError:
                raise problems.Problem(408, f"a body must be here within {self.seconds:g} seconds") from None
            if message["type"] == "http.request":
                whole = not message.get("more_body")
                size += len(message.get("body", b""))
                if size > self.most:
                    raise self._too_large()
            return message

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in HEADERS if one[0] not in known)]
            await send(message)

        said = dict(scope["headers"]).get(b"content-length", b"0")
        if not said.isdigit() or int(said) > self.most:
            too_large = self._too_large()
            await problems.answer(too_large.status_code, str(too_large.detail))(scope, receive, marked)
        else:
            await self.app(scope, bounded, marked)
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route).observe(time.perf_counter() - started)

    def _too_large(self) -> problems.Problem:
        return problems.Problem(413, f"a request may have at most {self.most} bytes")


def prompt_protocol(seconds: float) -> type[HttpToolsProtocol]:
    """The HTTP protocol that hangs up on a client which does not send a first request in time.

    Between requests the server's own keep-alive time holds.
    """

    class PromptProtocol(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head = self.loop.call_later(seconds, transport.close)

        def on_headers_complete(self) -> None:
            self._head_is_here()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            super().connection_lost(exc)

        def _head_is_here(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return PromptProtocol
