"""Calls to the servers: several addresses, failover, time limits, and errors that say whether to retry.

Each thread that calls has a link of its own, so that a heartbeat never waits behind a claim or a completion.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from forestay_pilot.clock import steady

if TYPE_CHECKING:
    from collections.abc import Iterable

CONNECT_SECONDS = 5.0
_IDLE_SECONDS = 4.0  # servers close idle connections after about five
_SUSPECT_SECONDS = 5.0
_MAX_ANSWER = 64 << 20


class LinkError(Exception):
    """A call did not succeed."""

    can_retry = True


class UnreachableError(LinkError):
    """No answer came: whether the server acted is unknown."""


class UnavailableError(LinkError):
    """The server answered that it cannot now (429, 5xx)."""

    def __init__(self, status: int, words: str, retry_after: float) -> None:
        super().__init__(f"{status} {words}".strip())
        self.status = status
        self.retry_after = retry_after


class RefusedError(LinkError):
    """The server will answer this request the same way every time (4xx)."""

    can_retry = False

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status} {words}".strip())
        self.status = status


@dataclass(frozen=True)
class ServerAddress:
    """One address of the service."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def read(cls, url: str) -> ServerAddress:
        """Read ``http(s)://host[:port][/prefix]``; raises ValueError for anything else."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError(f"{url!r} is not the address of a server")
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return cls(secure, parts.hostname, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.prefix}"


class ServerRing:
    """The servers known, and which of them failed just now; shared by all links of a pilot."""

    def __init__(self, urls: Iterable[str], ca_file: str | None = None, certificate: str | None = None) -> None:
        self._lock = threading.Lock()
        self._servers = list(dict.fromkeys(ServerAddress.read(url) for url in urls))
        self._suspect_until: dict[ServerAddress, float] = {}
        # The server that holds the pilot's channel. Asked first for everything else too: it then knows what it gave to the
        # pilot, and frees it at once when the pilot dies.
        self.home: ServerAddress | None = None
        self._tls: ssl.SSLContext | None = None
        self._ca_file = ca_file
        self._certificate = certificate
        if not self._servers:
            raise ValueError("no server is configured")
        random.shuffle(self._servers)  # pilots started with one list must not all lean on its first server

    def add(self, urls: Iterable[str]) -> None:
        """Learn of further servers; an address that cannot be read is passed over."""
        for url in urls:
            with contextlib.suppress(ValueError):
                server = ServerAddress.read(url)
                with self._lock:
                    if server not in self._servers:
                        self._servers.insert(random.randint(0, len(self._servers)), server)  # noqa: S311

    def order(self, first: ServerAddress | None = None, last: ServerAddress | None = None) -> list[ServerAddress]:
        """All servers, ``first`` in front, those that failed just now and ``last`` behind."""
        now = steady()
        with self._lock:
            servers = list(self._servers)
            suspect = {server for server, until in self._suspect_until.items() if until > now}
        return sorted(servers, key=lambda server: (server in suspect, server == last, server != first))

    def doubt(self, server: ServerAddress) -> None:
        """Remember that a server did not answer."""
        with self._lock:
            self._suspect_until[server] = steady() + _SUSPECT_SECONDS

    def trust(self, server: ServerAddress) -> None:
        """Forget earlier doubts."""
        if server in self._suspect_until:
            with self._lock:
                self._suspect_until.pop(server, None)

    def connect(self, server: ServerAddress, timeout: float) -> http.client.HTTPConnection:
        """A connection, already open."""
        connection: http.client.HTTPConnection
        if server.secure:
            with self._lock:
                if self._tls is None:
                    tls = ssl.create_default_context(cafile=self._ca_file)
                    if self._certificate is not None:
                        tls.load_cert_chain(self._certificate)
                    self._tls = tls
            connection = http.client.HTTPSConnection(
                server.host, server.port, timeout=min(timeout, CONNECT_SECONDS), context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=min(timeout, CONNECT_SECONDS))
        connection.connect()
        return connection


# Everything http.client, ssl and the sockets below raise when a connection fails.
NETWORK_ERRORS = (OSError, http.client.HTTPException)


class ServerLink:
    """One thread's calls to whichever server answers."""

    def __init__(self, ring: ServerRing) -> None:
        self._ring = ring
        self._server: ServerAddress | None = None
        self._connection: http.client.HTTPConnection | None = None
        self._connected_to: ServerAddress | None = None
        self._used_at = 0.0
        self._aborted = False

    def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        *,
        token: str,
        timeout: float,
        everywhere: bool = True,
    ) -> dict[str, Any]:
        """Call until one server answers, each tried once; with ``everywhere`` False only the first.

        Raises RefusedError at once, else the last server's error.
        """
        failure: LinkError = UnreachableError("no server was tried")
        for server in self._ring.order(first=self._ring.home or self._server):
            if self._aborted:
                raise UnreachableError("the request was given up")
            try:
                answer = self._ask(server, method, path, body, token, timeout)
            except RefusedError:
                self._server = server
                raise
            except LinkError as error:
                failure = error
                self._ring.doubt(server)
            else:
                self._server = server
                self._ring.trust(server)
                return answer
            if not everywhere:
                break
        raise failure

    def abort(self) -> None:
        """Give up the call under way, from another thread, and every later one."""
        self._aborted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            with contextlib.suppress(*NETWORK_ERRORS):
                self._connection.close()
            self._connection = None

    def _ask(
        self, server: ServerAddress, method: str, path: str, body: dict[str, Any] | None, token: str, timeout: float
    ) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            kept = self._open(server, timeout)
            try:
                return self._exchange(method, server.prefix + path, content, headers, timeout)
            except (http.client.RemoteDisconnected, ConnectionError):
                # The server may have closed an idle connection: try once more on a new one.
                if not kept or self._aborted:
                    raise
                self.close()
                self._open(server, timeout)
                return self._exchange(method, server.prefix + path, content, headers, timeout)
        except LinkError:
            raise
        except NETWORK_ERRORS as error:
            # A late answer must never be taken for that of the next call.
            self.close()
            raise UnreachableError(f"{server}: {error or type(error).__name__}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, server: ServerAddress, timeout: float) -> bool:
        """Have a connection to a server; true when it is one kept from an earlier call."""
        idle = steady() - self._used_at
        if self._connection is not None and self._connected_to == server and idle < _IDLE_SECONDS:
            return True
        self.close()
        self._connection = self._ring.connect(server, timeout)
        self._connected_to = server
        return False

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeout: float
    ) -> dict[str, Any]:
        connection = self._connection
        if self._aborted or connection is None or connection.sock is None:
            raise UnreachableError("the request was given up")
        connection.sock.settimeout(timeout)
        connection.request(method, path, content, headers)
        response = connection.getresponse()
        raw = response.read(_MAX_ANSWER)
        self._used_at = steady()
        if response.will_close or not response.isclosed():
            self.close()
        return _read_answer(response, raw)


def _read_answer(response: http.client.HTTPResponse, raw: bytes) -> dict[str, Any]:
    status = response.status
    try:
        document = json.loads(raw) if raw else {}
    except ValueError:
        document = None
    if 200 <= status < 300:
        if not isinstance(document, dict):
            raise UnavailableError(status, "the response is not a JSON object", 0.0)
        return document
    words = _problem_words(document) or response.reason
    if status in (408, 425, 429) or status >= 500 or status < 400:
        raise UnavailableError(status, words, _seconds(response.getheader("Retry-After")))
    raise RefusedError(status, words)


def _problem_words(document: object) -> str:
    if not isinstance(document, dict):
        return ""
    words = [str(document[key]) for key in ("title", "detail") if document.get(key)]
    if document.get("errors"):
        words.append(json.dumps(document["errors"])[:500])
    return ": ".join(words)


def _seconds(value: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(value or 0)))
    except ValueError:
        return 0.0
