"""FakeServer: the pilots' part of the interface, in memory, with failures that a test can order.

It is a fake, kept small on purpose. It says nothing about the real server; the live tests do that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ENROL_TOKEN = "enrol-token-that-no-payload-may-see"
PATIENCE = 60.0


def until(condition: Callable[[], Any], what: str = "the condition", patience: float = PATIENCE) -> Any:
    """Wait for a condition to hold and give its value; fail loudly when it never does."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience} s in vain for {what}")
        time.sleep(0.01)


@dataclass
class Failures:
    """What goes wrong; a test sets and clears it."""

    drop_requests: bool = False  # close every connection unanswered, as a dead server's machine would
    claims_after_heartbeats: int = 0  # claims are answered only when so many heartbeats have come since
    lose_completion_replies: int = 0  # store so many ends and then close the connection unanswered
    end_result: str = "committed"
    refuse_completions: int = 0  # so many ends are answered 422
    refuse_checkpoints: bool = False  # they are answered 409, as those of a superseded claim
    silent_channels: bool = False  # no pings
    token_seconds: float = 900.0
    unknown_fields: frozenset[str] = frozenset()  # registrations and completions with one of these are answered 422
    drain: bool = False


@dataclass
class Seen:
    """What the pilots did, in order."""

    registrations: list[dict[str, Any]] = field(default_factory=list)
    heartbeats: list[dict[str, Any]] = field(default_factory=list)
    claim_requests: list[dict[str, Any]] = field(default_factory=list)
    asked_along: list[dict[str, Any]] = field(default_factory=list)  # requests for work that came with completions
    brought_along: int = 0  # jobs that the answers to those brought
    completions: list[dict[str, Any]] = field(default_factory=list)  # every one received, repeats too
    channel: list[tuple[str, int]] = field(default_factory=list)  # ("open" or "close", session)
    logs: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    refused_checkpoints: int = 0
    renewals: int = 0
    unauthorised: int = 0
    goodbyes: int = 0


class FakeServer:
    """One server on a port of its own, which it keeps when it is stopped and started again."""

    def __init__(self, state: FakeServer | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.failures = Failures()
        self.seen: Seen = state.seen if state else Seen()
        self.jobs: list[dict[str, Any]] = state.jobs if state else []
        self.work: threading.Condition = state.work if state else threading.Condition()
        self.tokens: dict[str, float] = state.tokens if state else {}
        self.orders: dict[int, queue.Queue[tuple[str, dict[str, Any]]]] = state.orders if state else {}
        self.cancelled: list[str] = []
        self.channels = 0  # open here
        self.lease = 30.0
        self.heartbeat_every = 10.0
        self._connections: set[socket.socket] = set()
        self._counter = itertools.count(1)
        self._server: ThreadingHTTPServer | None = None
        self._running = threading.Event()
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        fake = self

        class Bound(_Handler):
            server_state = fake

        self._running.set()
        server = self._server = _Listener(("127.0.0.1", self._port), Bound)
        self._port = server.server_address[1]
        if self._tls is not None:
            server.socket = self._tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Go down as a killed process does: the port closes and every connection with it."""
        if self._server is None:
            return
        self._running.clear()
        self._server.shutdown()
        self._server.server_close()
        self._server = None
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        with self.work:
            self.work.notify_all()

    def submit(self, *command: str, **changes: Any) -> dict[str, Any]:
        """Queue a job; gives the claim document that a pilot will get."""
        specification = {"name": "test", "command": list(command), "environment": {}, "outputs": []}
        claim = {
            "job": str(uuid.uuid4()),
            "generation": 1,
            "attempt": 1,
            "claim": uuid.uuid4().hex,
            "tenant": "physics",
            "name": "test",
            "index": 0,
            "parameters": {},
            "resources": {"cpus": 1},
            "specification": specification,
        }
        for name, value in changes.items():
            if name in ("environment", "outputs", "effects", "checkpoint"):
                specification[name] = value
            else:
                claim[name] = value
        with self.work:
            self.jobs.append(claim)
            self.work.notify_all()
        return claim

    def order(self, kind: str, body: dict[str, Any]) -> None:
        """Send an order down the newest channel."""
        newest = until(lambda: max(self.orders, default=0), "an open channel")
        self.orders[newest].put((kind, body))

    def end_of(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Wait for a claim's end."""
        name = claim["claim"]
        result: dict[str, Any] = until(
            lambda: next((end for end in self.seen.completions if end["claim"] == name), None), f"the end of {name}"
        )
        return result

    def new_token(self) -> str:
        token = f"pilot-token-{uuid.uuid4().hex}"
        self.tokens[token] = time.monotonic() + self.failures.token_seconds
        return token


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections broken on purpose are no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: FakeServer
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def setup(self) -> None:
        super().setup()
        self.server_state._connections.add(self.connection)

    def finish(self) -> None:
        self.server_state._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        state = self.server_state
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        if state.failures.drop_requests or not state._running.is_set():
            self._hang_up()
            return
        parts = urlsplit(self.path)
        words = parts.path.strip("/").split("/")[2:]
        tail = words[1] if len(words) > 1 else ""
        if not self._allowed(tail, enrolling=not words):
            state.seen.unauthorised += 1
            self._answer(401, {"type": "about:blank", "title": "bad token", "status": 401})
        elif not words:
            self._register(body)
        elif self.command == "DELETE":
            state.seen.goodbyes += 1
            self._answer(200, {})
        elif tail == "channel":
            self._channel(int(parse_qs(parts.query)["session"][0]))
        else:
            getattr(self, f"_{tail}")(body)

    def _allowed(self, tail: str, *, enrolling: bool) -> bool:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if enrolling:
            return token == ENROL_TOKEN
        ends_at = self.server_state.tokens.get(token)
        return ends_at is not None and (tail == "token" or time.monotonic() < ends_at)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        kind = "application/json" if status < 400 else "application/problem+json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _register(self, body: dict[str, Any]) -> None:
        state = self.server_state
        if state.failures.unknown_fields & set(body):
            self._answer(422, {"detail": "the request is invalid"})
            return
        state.seen.registrations.append(body)
        document = {
            "pilot": f"pilot-{len(state.seen.registrations)}",
            "token": state.new_token(),
            "token_seconds": state.failures.token_seconds,
            "lease": state.lease,
            "heartbeat_every": state.heartbeat_every,
            "servers": [state.url],
        }
        self._answer(201, document)

    def _token(self, _body: dict[str, Any]) -> None:
        state = self.server_state
        state.seen.renewals += 1
        self._answer(200, {"token": state.new_token(), "token_seconds": state.failures.token_seconds})

    def _heartbeat(self, body: dict[str, Any]) -> None:
        state = self.server_state
        state.seen.heartbeats.append({**body, "at": time.monotonic()})
        answer = {
            "token": None,
            "token_seconds": 0,
            "cancel": list(state.cancelled),
            "drain": state.failures.drain,
        }
        self._answer(200, answer)

    def _claims(self, body: dict[str, Any]) -> None:
        state = self.server_state
        state.seen.claim_requests.append(body)
        with state.work:
            state.work.wait_for(lambda: state.jobs or not state._running.is_set(), body["wait"])
            jobs, state.jobs[: body["max"]] = state.jobs[: body["max"]], []
        if not state._running.is_set():
            state.jobs[:0] = jobs
            return
        if jobs and state.failures.claims_after_heartbeats:
            heard = len(state.seen.heartbeats) + state.failures.claims_after_heartbeats
            until(lambda: len(state.seen.heartbeats) >= heard, "heartbeats")
        self._answer(200, {"claims": jobs})

    def _completions(self, body: dict[str, Any]) -> None:
        state = self.server_state
        if "claim" in body:
            state.seen.asked_along.append(body["claim"])
        if state.failures.refuse_completions or state.failures.unknown_fields & set(body):
            state.failures.refuse_completions = max(0, state.failures.refuse_completions - 1)
            self._answer(422, {"title": "wrong", "errors": [{"field": "completions"}]})
            return
        state.seen.completions += body["completions"]
        if state.failures.lose_completion_replies:
            state.failures.lose_completion_replies -= 1
            self._hang_up()
            return
        result = state.failures.end_result
        results = [{"claim": end["claim"], "result": result, "detail": ""} for end in body["completions"]]
        answer = {"results": results}
        if "claim" in body:
            most = body["claim"]["max"]
            with state.work:
                answer["claims"], state.jobs[:most] = state.jobs[:most], []
            state.seen.brought_along += len(answer["claims"])
        self._answer(200, answer)

    def _checkpoints(self, body: dict[str, Any]) -> None:
        state = self.server_state
        if state.failures.refuse_checkpoints:
            state.seen.refused_checkpoints += 1
            self._answer(409, {"detail": "this pilot no longer holds the claim"})
            return
        state.seen.checkpoints.append(body)
        self._answer(200, {"path": body["checkpoint"]["manifest"]["path"]})

    def _begun(self, _body: dict[str, Any]) -> None:
        self._answer(200, {})

    def _log(self, body: dict[str, Any]) -> None:
        self.server_state.seen.logs.append(body)
        self._answer(200, {})

    def _channel(self, session: int) -> None:
        state = self.server_state
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        orders = state.orders[session] = queue.Queue()
        state.seen.channel.append(("open", session))
        state.channels += 1
        try:
            self._event("open", {})
            while state._running.is_set() and not self._hung_up():
                try:
                    self._event(*orders.get(timeout=0.05))
                except queue.Empty:
                    if not state.failures.silent_channels:
                        self._event("ping", {})
        except OSError:
            pass
        finally:
            state.orders.pop(session, None)
            state.channels -= 1
            state.seen.channel.append(("close", session))

    def _event(self, kind: str, body: dict[str, Any]) -> None:
        self.wfile.write(f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode())

    def _hung_up(self) -> bool:
        """Whether the pilot closed its end, which a server sees at once."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
