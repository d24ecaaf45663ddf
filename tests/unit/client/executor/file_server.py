"""A real HTTP server with files in memory, which breaks as a test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FileServer:
    """Files by path, and failures by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.failures: dict[str, list[str | int | bytes]] = {}
        """What goes wrong with a path, one entry a request, until there are no more: a status, `cut`, or other bytes than its own."""
        self.asked: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.gate: threading.Barrier | None = None
        """So many requests are only answered together."""
        self.lock = threading.Lock()
        self.port = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


class _Handler(BaseHTTPRequestHandler):
    state: FileServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        pass

    def do_GET(self) -> None:
        state = self.state
        with state.lock:
            state.asked.append(self.path)
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
            failure = state.failures[self.path].pop(0) if state.failures.get(self.path) else None
        if state.gate is not None:
            state.gate.wait(30)
        with state.lock:
            state.at_once -= 1  # before the answer: whoever has it may ask for the next at once
        self._answer(failure)

    def _answer(self, failure: str | int | bytes | None) -> None:
        content = failure if isinstance(failure, bytes) else self.state.files.get(self.path)
        if isinstance(failure, int):
            self.send_response(failure)
            self.send_header("Location", self.state.url("/elsewhere"))
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif content is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if failure == "cut" else content)


@contextmanager
def file_server() -> Iterator[FileServer]:
    state = FileServer()
    handler = type("Bound", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield state
        server.shutdown()
        thread.join()
