"""A real way between a pilot and its server that can be cut and restored: a TCP proxy."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

REQUEST = b" HTTP/1.1\r\n"
"""How the first line of a request ends; that of an answer does not."""


class Wire:
    """Passes bytes on both ways while it is whole; cut, it hangs up on everyone and takes nobody."""

    def __init__(self, target: str, port: int = 0) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._whole = True
        self.refused = 0
        self.requests = 0
        """How many HTTP requests came this way."""
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            cut, self._open = self._open, set()
        for sock in cut:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def recover(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._server.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        """One connection, for as long as it lasts."""
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        with near, far:
            with self._lock:
                if not self._whole:
                    self.refused += 1
                    return
                self._open |= {near, far}
            back = threading.Thread(target=_pass_on, args=(far, near), daemon=True)
            back.start()
            _pass_on(near, far, self._count)
            back.join()
            with self._lock:
                self._open -= {near, far}

    def _count(self, number: int) -> None:
        with self._lock:
            self.requests += number


def _uncounted(_: int) -> None:
    """Answers are as many as requests."""


def _pass_on(source: socket.socket, sink: socket.socket, count: Callable[[int], None] = _uncounted) -> None:
    before = b""
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            count((before + data).count(REQUEST))
            before = data[1 - len(REQUEST) :]
            sink.sendall(data)
    for sock in (source, sink):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def cut_wire(target: str, port: int = 0) -> Iterator[Wire]:
    wire = Wire(target, port)
    try:
        yield wire
    finally:
        wire.close()
