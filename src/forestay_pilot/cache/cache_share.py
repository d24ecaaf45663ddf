"""Serves cached files to pilots on other hosts of the site; only if an operator enables it, because it needs an open port.

A reader shows a ticket that the servers made for one file and a short time with a secret that this pilot told them. There is nothing to
list, and what is not a file of the cache under exactly the asked name does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from forestay_pilot.cache.cache import Cache

log = logging.getLogger("forestay_pilot")

_AT_ONCE = 16
_SILENCE = 30.0  # a reader that receives nothing for this time is disconnected
_BUSY = b"HTTP/1.0 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


def make_ticket(secret: str, name: str, expires: int) -> str:
    """The permission to read one file until then, in seconds since 1970; made by the servers."""
    return f"{expires}.{_seal(secret, name, expires)}"


def good_ticket(secret: str, name: str, ticket: str, now: float) -> bool:
    """Whether a ticket is for this file, made with this secret, and not too old."""
    expires, _, seal = ticket.partition(".")
    if not expires.isascii() or not expires.isdigit() or len(expires) > 12 or now >= int(expires):
        return False
    return hmac.compare_digest(seal.encode(), _seal(secret, name, int(expires)).encode())


def _seal(secret: str, name: str, expires: int) -> str:
    return hmac.new(secret.encode(), f"{name}\n{expires}".encode(), hashlib.sha256).hexdigest()


class CacheShare:
    """The open port of a pilot that shares its cache."""

    def __init__(self, cache: Cache, address: str, *, at_once: int = _AT_ONCE) -> None:
        self._secret = secrets.token_hex(32)
        host, port = _split(address)
        share, room = self, threading.BoundedSemaphore(at_once)

        class Handler(_Handler):
            cache_ = cache
            share_ = share

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def process_request(self, request: Any, client_address: Any) -> None:
                """Serve a reader in a thread, if there are not too many; the others go to another source."""
                if room.acquire(blocking=False):
                    super().process_request(request, client_address)
                else:
                    with contextlib.suppress(OSError):
                        request.sendall(_BUSY)
                    self.shutdown_request(request)

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    room.release()

            def handle_error(self, request: Any, client_address: Any) -> None:
                log.debug("a reader of the cache disconnected")

        self._server = Server((host, port), Handler)
        bound = self._server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{bound}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="share", daemon=True)
        self._thread.start()
        log.info("cached files are served to pilots of this site at %s", self.url)

    def told(self) -> dict[str, str]:
        """What the servers must know to send readers here; never written anywhere."""
        return {"url": self.url, "secret": self._secret}

    def may_read(self, name: str, ticket: str) -> bool:
        """Whether a reader may have a file."""
        return good_ticket(self._secret, name, ticket, time.time())

    def close(self) -> None:
        """Take no more readers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection."""

    cache_: Cache
    share_: CacheShare
    timeout = _SILENCE
    server_version = "forestay-pilot"
    sys_version = ""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Log nothing: addresses and names of files are private."""

    def do_GET(self) -> None:
        """Serve a file, or the end of one."""
        parts = urlsplit(self.path)
        name = (parse_qs(parts.query).get("name") or [""])[0]
        scheme, _, ticket = self.headers.get("Authorization", "").partition(" ")
        if parts.path != "/file" or scheme != "Ticket" or not self.share_.may_read(name, ticket):
            self._refuse(403)
            return
        opened = self.cache_.open(name)
        if opened is None:
            self._refuse(404)
            return
        descriptor, size, sha256 = opened
        try:
            piece = self._wanted(size)
            if piece is None:
                self._refuse(416)
                return
            self._send(descriptor, size, sha256, *piece)
        finally:
            os.close(descriptor)

    def _wanted(self, size: int) -> tuple[int, int] | None:
        """First byte and number of bytes; none for what is not in the file."""
        asked = self.headers.get("Range")
        if asked is None:
            return 0, size
        match = _RANGE.fullmatch(asked)
        if match is None:
            return 0, size
        first = int(match[1])
        last = min(int(match[2]) if match[2] else size - 1, size - 1)
        return (first, last - first + 1) if first <= last else None

    def _send(self, descriptor: int, size: int, sha256: str, first: int, count: int) -> None:
        partial = "Range" in self.headers and (first, count) != (0, size)
        self.send_response(206 if partial else 200)
        self.send_header("Content-Length", str(count))
        self.send_header("ETag", f'"{sha256}"')
        if partial:
            self.send_header("Content-Range", f"bytes {first}-{first + count - 1}/{size}")
        self.end_headers()
        with open(descriptor, "rb", buffering=0, closefd=False) as source:
            self.connection.sendfile(source, first, count)

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _split(address: str) -> tuple[str, int]:
    """``HOST`` or ``HOST:PORT``; port 0 takes any that is free."""
    host, _, port = address.rpartition(":") if address.count(":") == 1 or "]" in address else (address, "", "0")
    host = host.strip("[]")
    if not host or host in ("0.0.0.0", "::") or not port.isdigit():  # noqa: S104 - refused
        raise ValueError(f"{address!r} is not an address for other hosts; use HOST or HOST:PORT")
    return host, int(port)
