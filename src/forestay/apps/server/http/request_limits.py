"""The first checks of every request: bounds on its size and its time, the headers of every response, and time measurement."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.config.settings import Settings
from forestay.apps.server.http import problems
from forestay.apps.server.http.caller_limits import CALLER, TURN, BodyBytes
from forestay.apps.server.http.json_bodies import SMALL_BYTES
from forestay.apps.server.http.request_context import context_of, known_caller

HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]
"""A browser must not guess the type of a response, and no proxy may cache it."""
MAX_HEAD = 65_536
"""The most bytes in the head of a request: a token has at most 8,192, and the caller is not authenticated while it is read."""
MAX_HEADERS = 100

ACTS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN = frozenset({"/login"})
"""The only address without a token: it exchanges a link's secret for a session."""


class RequestLimits:
    """Refuses bodies from unauthenticated callers, and bodies that are too large or too slow whatever their headers say; measures each request."""

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
        held: BodyBytes | None = None
        until_answered = AsyncExitStack()

        async def bounded() -> Message:
            nonlocal size, whole, held
            if size == 0 and not whole and scope["method"] in ACTS and scope["path"] not in OPEN:
                request = Request(scope)
                await known_caller(request)
                if CALLER in scope and held is None:
                    held = until_answered.enter_context(context_of(request).callers.body(scope))
                if TURN not in scope and CALLER in scope and self._large(scope):
                    scope[TURN] = None
                    turn = context_of(request).callers.large_body(scope)
                    scope[TURN] = await until_answered.enter_async_context(turn)
            if whole:  # the next message is that the client has gone; that may take long
                return await receive()
            try:
                async with asyncio.timeout(started + self.seconds - time.perf_counter()):
                    message = await receive()
            except TimeoutError:
                raise problems.HttpProblem(408, f"the body must arrive within {self.seconds:g} seconds") from None
            if message["type"] == "http.request":
                whole = not message.get("more_body")
                many = len(message.get("body", b""))
                size += many
                if size > self.most:
                    raise self._too_large()
                if held is not None:
                    held.add(many)
            return message

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(header for header in HEADERS if header[0] not in known)]
            await send(message)

        if (refused := self._refused(scope)) is not None:
            refusal = problems.answer(refused.status_code, str(refused.detail), path=scope["path"])
            await refusal(scope, receive, marked)
        else:
            async with context_of(Request(scope)).callers.at_work(scope), until_answered:
                await self.app(scope, bounded, marked)
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route).observe(time.perf_counter() - started)

    def _refused(self, scope: Scope) -> problems.HttpProblem | None:
        """The reason to refuse a request by its head alone."""
        headers = scope["headers"]
        size = (
            len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in headers)
        )
        if size > MAX_HEAD or len(headers) > MAX_HEADERS:
            return problems.HttpProblem(
                431, f"the limit for the head of a request is {MAX_HEAD} bytes and {MAX_HEADERS} headers"
            )
        known = dict(headers)
        if known.get(b"content-encoding", b"identity") != b"identity":
            return problems.HttpProblem(400, "a body is not unpacked: send it without a Content-Encoding")
        length = known.get(b"content-length", b"0")
        return self._too_large() if not length.isdigit() or int(length) > self.most else None

    def _large(self, scope: Scope) -> bool:
        """Whether the body is large according to its head: a body without a length may be."""
        headers = dict(scope["headers"])
        return b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > SMALL_BYTES

    def _too_large(self) -> problems.HttpProblem:
        return problems.HttpProblem(413, f"the limit for a request is {self.most} bytes")


def bounded_http_protocol(seconds: float) -> type[asyncio.Protocol]:
    """The HTTP protocol that disconnects a client which does not send the head of a request in time, or sends too large a head.

    uvicorn has no such bounds. Received data is passed to uvicorn's own protocol; a second parser, which costs a few microseconds per
    request, tracks where heads begin and end. Between requests, while nothing arrives, the server's keep-alive time applies.
    """

    class BoundedHttpProtocol(asyncio.Protocol):
        def __init__(self, **options: Any) -> None:
            self._http = HttpToolsProtocol(**options)
            self._parser = HttpRequestParser(self)
            self._within_body = False
            self._ended = False
            """Whether a request ended with the last piece."""
            self._begun = 0
            """Bytes of a head that has not ended."""
            self._timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self._transport: asyncio.Transport = transport
            self._http.connection_made(transport)
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            self._ended = False
            try:
                self._parser.feed_data(data)
            except (HttpParserError, HttpParserUpgrade):
                self._ended = True  # uvicorn's parser finds the same error, and answers
            self._http.data_received(data)
            if self._within_body or self._ended or self._transport.is_closing():
                return
            self._begun += len(data)
            if self._begun > MAX_HEAD:
                self._transport.close()
            elif self._timer is None:
                self._start_timer()

        def on_message_begin(self) -> None:
            self._ended = False

        def on_headers_complete(self) -> None:
            self._within_body, self._begun = True, 0
            self._stop_timer()

        def on_message_complete(self) -> None:
            self._within_body, self._ended = False, True

        def eof_received(self) -> None:
            self._http.eof_received()

        def pause_writing(self) -> None:
            self._http.pause_writing()

        def resume_writing(self) -> None:
            self._http.resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            self._http.connection_lost(exc)

        def _start_timer(self) -> None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.close)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return BoundedHttpProtocol
