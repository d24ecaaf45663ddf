"""What every request passes first: bounds on its size and its time, the headers of every answer, and a stop watch."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.config.settings import Settings
from forestay.apps.server.http import problems
from forestay.apps.server.http.quick_heartbeat import START, QuickHeartbeat
from forestay.apps.server.http.request_context import known_caller

HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
"""A browser must not guess what an answer is, and nobody between may keep it."""
_LATER = 1_048_576
MAX_HEAD = 65_536
"""Bytes that the head of a request may have: a token has at most 8,192, and nobody is known yet while it is read."""
MAX_HEADERS = 100

ACTS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN = frozenset({"/login"})
"""The one address without a token: it trades a link's secret for a session."""


class RequestLimits:
    """Refuses bodies of strangers, and those that are too large or too slow, whatever they say of themselves; measures each request."""

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
            if size == 0 and not whole and scope["method"] in ACTS and scope["path"] not in OPEN:
                await known_caller(Request(scope))
            if whole:  # what comes now is that the client is gone; that may take long
                return await receive()
            try:
                async with asyncio.timeout(started + self.seconds - time.perf_counter()):
                    message = await receive()
            except TimeoutError:
                raise problems.HttpProblem(408, f"the body must arrive within {self.seconds:g} seconds") from None
            if message["type"] == "http.request":
                whole = not message.get("more_body")
                size += len(message.get("body", b""))
                if size > self.most:
                    raise self._too_large()
            return message

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in HEADERS if header[0] not in known)]
            await send(message)

        header = dict(scope["headers"]).get(b"content-length", b"0")
        if not header.isdigit() or int(header) > self.most:
            too_large = self._too_large()
            refused = problems.answer(too_large.status_code, str(too_large.detail), path=scope["path"])
            await refused(scope, receive, marked)
        else:
            await self.app(scope, bounded, marked)
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route).observe(time.perf_counter() - started)

    def _too_large(self) -> problems.HttpProblem:
        return problems.HttpProblem(413, f"the limit for a request is {self.most} bytes")


def bounded_http_protocol(seconds: float, heartbeats: QuickHeartbeat) -> type[HttpToolsProtocol]:
    """The HTTP protocol that hangs up on a client which does not send the head of a request in time, or sends too much of one, and that answers heartbeats before anything else.

    Between requests, while nothing comes, the server's own keep-alive time holds.
    """

    class PromptProtocol(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None
        _within = False
        """Whether the parser has the beginning of a request and not its end."""
        _headed = False
        """Whether the head of that request is whole."""
        _heading = 0
        """Bytes of a head that came so far."""
        _told = 0
        """Bytes of its headers."""
        _later: list[bytes] | None = None
        """What came while a heartbeat waits for its answer: answers keep the order of the requests."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            if self._later is not None:
                self._later.append(data)
                if sum(map(len, self._later)) > _LATER:
                    self.transport.close()  # nobody honest sends so much before the answer
                return
            between = not self._within and (self.cycle is None or self.cycle.response_complete)
            if (
                between
                and data.startswith(START)
                and heartbeats.take(data, lambda answer: self._heartbeat_answered(data, answer))
            ):
                self._head_is_here()
                self._unset_keepalive_if_required()
                self._later = []
                return
            super().data_received(data)
            self._mind_head(len(data))

        def _mind_head(self, more: int) -> None:
            """A head that is begun has its time and its bound, the first one of a connection and every later one."""
            answering = self.cycle is not None and not self.cycle.response_complete
            if self._headed or (answering and not self._within) or self.transport.is_closing():
                return
            self._heading += more
            if self._heading > MAX_HEAD:
                self.transport.close()
            elif self._head is None:
                self._head = self.loop.call_later(seconds, self.transport.close)

        def _heartbeat_answered(self, request: bytes, answer: bytes | None) -> None:
            if self.transport.is_closing():
                return
            later, self._later = self._later or [], None
            if answer is None:
                later.insert(0, request)
            else:
                self.transport.write(answer)
                self.on_response_complete()
            for data in later:
                # By the machinery alone: what goes the usual way must not come back here.
                super().data_received(data)

        def on_message_begin(self) -> None:
            self._within, self._headed, self._heading, self._told = True, False, 0, 0
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            super().on_url(url)
            self._bounded(len(self.url))

        def on_header(self, name: bytes, value: bytes) -> None:
            super().on_header(name, value)
            self._told += len(name) + len(value)
            self._bounded(len(self.url) + self._told)

        def _bounded(self, size: int) -> None:
            if size > MAX_HEAD or len(self.headers) > MAX_HEADERS:
                raise ValueError("the head of the request is too large")  # the parser makes it a 400, and hangs up

        def on_headers_complete(self) -> None:
            self._headed, self._heading, self._told = True, 0, 0
            self._head_is_here()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._within = self._headed = False
            super().on_message_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            super().connection_lost(exc)

        def _head_is_here(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return PromptProtocol
