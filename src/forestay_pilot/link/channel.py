"""The channel: an event stream that the pilot holds open, by which the servers notice its death at once.

A channel that closes with no newer session means death. So while it lives the pilot opens the next one
before it closes the last, and when one breaks it opens the next at once, at another server if there is one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import socket
import threading
from typing import TYPE_CHECKING, Any, Callable
from urllib.parse import quote

from forestay_pilot.clock import steady
from forestay_pilot.link.server_link import (
    NETWORK_ERRORS,
    LinkError,
    RefusedError,
    ServerAddress,
    ServerRing,
    UnreachableError,
)

if TYPE_CHECKING:
    import http.client

    from forestay_pilot.link.identity import PilotIdentity

log = logging.getLogger("forestay_pilot")

_OPEN_SECONDS = 10.0
_LONGEST_LINE = 1 << 20


class _Stream:
    """One opened event stream."""

    def __init__(self, server: ServerAddress, connection: http.client.HTTPConnection) -> None:
        self.server = server
        self.session = 0
        self.pilot = ""
        self._connection = connection
        self._socket = connection.sock  # http.client drops it when the response says "close"
        self._response: http.client.HTTPResponse | None = None

    def ask(self, path: str, token: str) -> None:
        """Send the request and see that the server takes it; raises RefusedError or a network error."""
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        self._connection.request("GET", path, headers=headers)
        response = self._connection.getresponse()
        if response.status != 200:
            words = response.read(2000).decode(errors="replace")
            if 400 <= response.status < 500 and response.status != 429:
                raise RefusedError(response.status, words)
            raise UnreachableError(f"{self.server}: {response.status} {words}")
        self._response = response

    def next_event(self, timeout: float) -> tuple[str, str] | None:
        """The next event and its data; None at the stream's end. Raises network errors and timeouts."""
        assert self._response is not None  # noqa: S101
        self._socket.settimeout(timeout)
        kind = "message"
        data: list[str] = []
        while True:
            line = self._response.readline(_LONGEST_LINE)
            if not line:
                return None
            text = line.decode(errors="replace").rstrip("\r\n")
            if not text:
                if data or kind != "message":
                    return kind, "\n".join(data)
                continue
            name, _, value = text.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "event":
                kind = value
            elif name == "data":
                data.append(value)
            elif not name:
                return "comment", ""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(*NETWORK_ERRORS):
            if self._response is not None:
                self._response.close()
            self._connection.close()


class ServerChannel(threading.Thread):
    """The thread that holds the channel and passes on its orders."""

    def __init__(
        self,
        ring: ServerRing,
        identity: PilotIdentity,
        *,
        on_order: Callable[[str, dict[str, Any]], None],
        silence: float = 15.0,
    ) -> None:
        super().__init__(name="channel", daemon=True)
        self._ring = ring
        self._identity = identity
        self._on_order = on_order
        self._silence = silence
        self._ended = threading.Event()
        self._tried = 0
        self._current: _Stream | None = None
        self.opened = threading.Event()

    @property
    def session(self) -> int:
        """The newest session a server has stored."""
        current = self._current
        return current.session if current else self._tried

    def run(self) -> None:
        """Hold one channel after the other until told to end."""
        while not self._ended.is_set():
            try:
                self._hold_one()
            except Exception:
                log.exception("the channel failed unexpectedly")
                self._ended.wait(1.0)
        if self._current is not None:
            self._current.close()

    def end(self) -> None:
        """Close the channel; only for a pilot that has said good-bye, or is about to."""
        self._ended.set()
        if self._current is not None:
            self._current.close()

    def _hold_one(self) -> None:
        last = self._current
        stream = self._open_next(avoid=last.server if last else None)
        if stream is None:
            return
        self._current = stream  # from here on heartbeats name the new session
        self._ring.home = stream.server
        self.opened.set()
        if last is not None:
            last.close()
        broken = self._listen(stream)
        if broken and not self._ended.is_set():
            stream.close()
            self._current = None if self._current is stream else self._current

    def _open_next(self, avoid: ServerAddress | None) -> _Stream | None:
        wait = 0.0
        while not self._ended.is_set():
            for server in self._ring.order(last=avoid):
                if self._ended.is_set():
                    return None
                stream = self._try(server)
                if stream is not None:
                    return stream
            wait = min(5.0, max(0.1, wait * 2))
            self._ended.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
        return None

    def _try(self, server: ServerAddress) -> _Stream | None:
        """Open a channel at one server and wait until the server confirms that the session is stored."""
        self._tried += 1
        token, pilot = self._identity.bearer(), self._identity.pilot
        stream = None
        try:
            stream = _Stream(server, self._ring.connect(server, _OPEN_SECONDS))
            stream.session, stream.pilot = self._tried, pilot
            stream.ask(f"{server.prefix}/v1/pilots/{quote(pilot, safe='')}/channel?session={self._tried}", token)
            give_up = steady() + _OPEN_SECONDS
            while steady() < give_up:
                event = stream.next_event(_OPEN_SECONDS)
                if event is None:
                    break
                if event[0] == "open":
                    self._ring.trust(server)
                    return stream
            raise UnreachableError(f"{server}: the channel did not open")
        except RefusedError as refusal:
            with contextlib.suppress(LinkError):
                self._identity.recover(token, refusal)
        except (LinkError, *NETWORK_ERRORS):
            self._ring.doubt(server)
        if stream is not None:
            stream.close()
        return None

    def _listen(self, stream: _Stream) -> bool:
        """Obey orders until the stream breaks (true), or falls silent or is out of date (false)."""
        while not self._ended.is_set():
            try:
                event = stream.next_event(self._silence)
            except socket.timeout:
                log.warning("%s has been silent for %.0f s; opening another channel", stream.server, self._silence)
                self._ring.doubt(stream.server)
                return False
            except (ValueError, AttributeError, *NETWORK_ERRORS):
                return True  # the last two are what a response closed by another thread raises
            if event is None:
                return True
            if event[0] not in ("ping", "comment", "open"):
                self._obey(*event)
            if stream.pilot != self._identity.pilot:
                return False
        return True

    def _obey(self, kind: str, data: str) -> None:
        try:
            body = json.loads(data) if data else {}
            self._on_order(kind, body if isinstance(body, dict) else {})
        except Exception:
            log.exception("the command %r could not be executed", kind)
