"""Reads a file from the cache of a pilot on another host of the site, and checks its digest during the transfer."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
from typing import BinaryIO
from urllib.parse import quote, urlsplit

_FIRST = 4.0  # seconds for an answer to begin: there are other sources
_TIMEOUT = 15.0
_PIECE = 1 << 20
_TRIES = 3


class PeerError(Exception):
    """The other pilot did not serve the file; another source may."""


def fetch_peer(
    url: str, ticket: str, name: str, target: str, *, sha256: str | None = None, size: int | None = None
) -> tuple[int, str]:
    """Bring a file to its target; gives its size and SHA-256. Raises PeerError."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise PeerError(f"{url!r} is not the address of a pilot")
    draft = target + ".peer"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(draft, "wb", buffering=0) as sink:
            reading = _PeerDownload(parts.hostname, parts.port, ticket, name, sink)
            reading.run()
        digest = reading.digest.hexdigest()
        wrong = digest != reading.tag or (sha256 is not None and digest != sha256)
        if wrong or (size is not None and reading.done != size):
            raise PeerError("the received file is not the requested one")
        os.rename(draft, target)
    except OSError as error:
        raise PeerError(str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)
    return reading.done, digest


class _PeerDownload:
    """The transfer of one file; a broken one is resumed where it stopped."""

    def __init__(self, host: str, port: int, ticket: str, name: str, sink: BinaryIO) -> None:
        self._host = host
        self._port = port
        self._ticket = ticket
        self._name = name
        self._sink = sink
        self.digest = hashlib.sha256()
        self.done = 0
        self.tag = ""  # the digest that the other pilot announced

    def run(self) -> None:
        for left in range(_TRIES - 1, -1, -1):
            begun = self.done
            try:
                total = self._read_on()
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not left or self.done == begun:
                    raise PeerError(f"{type(error).__name__}: {error}") from error
            else:
                if self.done >= total:
                    return
        raise PeerError(f"the transfer was interrupted after {self.done} bytes")

    def _read_on(self) -> int:
        """Read until the answer ends; gives the size of the whole."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_FIRST)
        try:
            headers = {"Authorization": f"Ticket {self._ticket}"}
            if self.done:
                headers["Range"] = f"bytes={self.done}-"
            connection.request("GET", f"/file?name={quote(self._name, safe='')}", headers=headers)
            wire = connection.sock
            answer = connection.getresponse()
            wire.settimeout(_TIMEOUT)
            if answer.status != (206 if self.done else 200):
                raise PeerError(f"it answered {answer.status}")
            tag = (answer.getheader("ETag") or "").strip('"')
            if self.tag not in ("", tag):
                raise PeerError("its file has changed")
            self.tag = tag
            total = self.done + int(answer.getheader("Content-Length") or 0)
            while True:
                piece = answer.read(_PIECE)
                if not piece:
                    return total
                self.digest.update(piece)
                self.done += len(piece)
                left = memoryview(piece)
                while left:
                    left = left[self._sink.write(left) :]
        finally:
            connection.close()
