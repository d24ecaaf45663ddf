"""A web server of files that is slow and fails at regular intervals: the storage of the demonstration."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DELAY = 0.4
"""Seconds for which every request waits."""
REFUSED_EVERY = 4
"""Every so many requests one is refused with 503."""
BROKEN_EVERY = 7
"""Every so many requests one is broken off in the middle."""
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(slots=True)
class DemoStorage:
    """What the server has, and what it did."""

    folder: Path
    url: str = ""
    requests: int = 0
    failed: int = 0
    bytes_sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_request(self) -> int:
        with self.lock:
            self.requests += 1
            return self.requests

    def count(self, *, sent: int = 0, failed: bool = False) -> None:
        with self.lock:
            self.bytes_sent += sent
            self.failed += failed


class _Handler(BaseHTTPRequestHandler):
    storage: DemoStorage
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def do_GET(self) -> None:
        number = self.storage.next_request()
        time.sleep(DELAY)
        if number % REFUSED_EVERY == 0:
            self.storage.count(failed=True)
            self.send_error(503)
            return
        path = self.storage.folder / Path(self.path).name  # no folders: nothing beside them can be named
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        begin = int(opened[1]) if (opened := _RANGE.match(self.headers.get("Range", ""))) else 0
        rest = content[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        if number % BROKEN_EVERY == 0:
            rest = rest[: len(rest) // 2]
            self.close_connection = True
        self.storage.count(sent=len(rest), failed=number % BROKEN_EVERY == 0)
        self.wfile.write(rest)


class _StorageServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A pilot that was killed leaves its connection broken."""


@contextmanager
def slow_storage(folder: Path) -> Iterator[DemoStorage]:
    """Serve the files of a folder on loopback, slowly and with failures."""
    storage = DemoStorage(folder)
    with _StorageServer(("127.0.0.1", 0), type("_Bound", (_Handler,), {"storage": storage})) as server:
        storage.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield storage
        finally:
            server.shutdown()
            thread.join()
