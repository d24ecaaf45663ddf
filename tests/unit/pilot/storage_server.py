"""A storage server whose failures are scripted, for tests: each request takes the next one from the list. The benchmarks' own (`bench/pilots/storage_server.py`) draws its
failures by chance instead; both speak the same HTTP.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-(?:\d+)?")


@dataclass(frozen=True)
class Failure:
    """What goes wrong with one request."""

    status: int = 0  # answer this instead
    body: bytes = b""
    after: int | None = None  # send (or take) so many bytes, then break the connection
    reset: bool = False  # break it roughly
    hang: bool = False  # instead of breaking it, send no more until the server is released
    delay: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    spoil: bool = False  # flip a byte of what is sent
    weak: bool = False  # no mark that could be trusted


GOOD = Failure()


@dataclass
class Storage:
    """What the server has, and what it was asked."""

    folder: Path
    failures: list[Failure] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    bytes_out: int = 0
    bytes_in: int = 0
    hold: threading.Event | None = None  # answers wait for it
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_failure(self) -> Failure:
        with self.lock:
            return self.failures.pop(0) if self.failures else GOOD

    def ranges(self) -> list[str]:
        return [headers.get("Range", "").partition("-")[0] for _, _, headers in self.asked]


class _Handler(BaseHTTPRequestHandler):
    storage: Storage

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def _begin(self) -> Failure | None:
        self.storage.asked.append((self.command, self.path, dict(self.headers)))
        if self.storage.hold is not None:
            self.storage.hold.wait(30)
        failure = self.storage.next_failure()
        time.sleep(failure.delay)
        if failure.status:
            self._answer(failure.status, failure.body, failure.headers)
            return None
        return failure

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        failure = self._begin()
        if failure is None:
            return
        place = self.storage.folder / self.path.split("?")[0].lstrip("/")
        if not place.is_file():
            self._answer(404, b"", {})
            return
        content = place.read_bytes()
        mark = f'"{hashlib.sha256(content).hexdigest()}"'
        start, opened = 0, _RANGE.fullmatch(self.headers.get("Range", ""))
        if opened and self.headers.get("If-Range", mark) == mark:
            start = int(opened[1])
            if start >= len(content):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if not failure.weak:
            self.send_header("ETag", mark)
        rest = content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if failure.spoil:
            rest = bytes([rest[0] ^ 1]) + rest[1:]
        if failure.after is not None:
            rest = rest[: failure.after]
        with self.storage.lock:
            self.storage.bytes_out += len(rest)
        self.wfile.write(rest)
        if failure.hang:
            self.wfile.flush()
            self.storage.released.wait(30)
        if failure.after is not None:
            self._break(roughly=failure.reset)

    def do_PUT(self) -> None:
        failure = self._begin()
        if failure is None:
            return
        place = self.storage.folder / self.path.split("?")[0].lstrip("/")
        length = int(self.headers["Content-Length"])
        content = self.rfile.read(min(length, failure.after) if failure.after is not None else length)
        with self.storage.lock:
            self.storage.bytes_in += len(content)
        if failure.after is not None:
            self._break(roughly=failure.reset)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        self._answer(201, b"", {})

    def _break(self, *, roughly: bool) -> None:
        self.wfile.flush()
        if roughly:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR) if not roughly else self.connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        pass  # of clients that were broken off


@contextmanager
def serving(folder: Path, *failures: Failure) -> Iterator[Storage]:
    """A storage server over a folder; its address is ``url``, without a slash at the end."""
    storage = Storage(folder, list(failures))
    with _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"storage": storage})) as server:
        storage.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield storage
        storage.released.set()
        server.shutdown()
        thread.join()
