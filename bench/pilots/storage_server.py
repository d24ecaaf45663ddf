"""A storage element over HTTP whose delay, rate and failures are set: real files, real sockets.

    python -m bench.pilots.storage_server --folder DIR --delay 0.5 --failure 0.1 --seed 3

It serves GET, HEAD and PUT of files below its folder, tells its address on the first line of standard output, and answers ``GET /.counts`` with what it did so far. An access
takes ``delay`` seconds longer than its bytes need (Gaussian, by ``--spread``), and fails with probability ``--failure`` at its end, by the status 503. Luck is drawn from
the seed, the path and how often that path was asked for in that way, so that two runs with one seed meet the same luck.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import NormalDist

PIECE = 1 << 18


class Luck:
    """How long each access takes and whether it does well."""

    def __init__(self, seed: int, delay: float, failure: float, spread: float) -> None:
        self.seed, self.delay, self.failure, self.spread = seed, delay, failure, spread
        self.counts: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, way: str, path: str) -> tuple[float, bool]:
        """Extra seconds of the next access in this way to this path, and whether it does well."""
        name = luck_name(path)
        if name == "manifest.json":  # a few bytes; the delay stands for those of the files
            return 0.0, True
        with self._lock:
            again = self._asked[f"{way} {name}"]
            self._asked[f"{way} {name}"] += 1
        return drawn(self.seed, way, name, again, self.delay, self.failure, self.spread)

    def count(self, what: str, many: int = 1) -> None:
        with self._lock:
            self.counts[what] += many


def luck_name(path: str) -> str:
    """The part of a path that luck depends on: its file, not the attempt's folder, which is random."""
    return path.rpartition("/")[2]


def drawn(
    seed: int, way: str, name: str, again: int, delay: float, failure: float, spread: float
) -> tuple[float, bool]:
    """The luck of one access; a function of its arguments alone."""
    digest = hashlib.sha256(f"{seed} {way} {name} {again}".encode()).digest()
    first, second = ((int.from_bytes(digest[at : at + 8], "big") + 0.5) / 2.0**64 for at in (0, 8))
    longer = delay * max(0.05, 1.0 + spread * NormalDist().inv_cdf(first)) if delay else 0.0
    return longer, second >= failure


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: StorageServer

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        if self.path == "/.counts":
            self._answer(200, json.dumps(self.server.luck.counts).encode())
            return
        self._serve(body=True)

    def do_PUT(self) -> None:
        place = self._place()
        left = int(self.headers.get("Content-Length", 0))
        longer, well = self.server.luck.draw("PUT", self.path)
        time.sleep(longer)
        place.parent.mkdir(parents=True, exist_ok=True)
        partly = place.with_name(f".{place.name}.{threading.get_ident()}")
        with partly.open("wb") as file:
            while left > 0:
                piece = self.rfile.read(min(PIECE, left))
                if not piece:
                    break
                file.write(piece)
                left -= len(piece)
                self.server.luck.count("bytes in", len(piece))
        if not well or left:
            partly.unlink(missing_ok=True)
            self.server.luck.count("failed PUT")
            self._answer(503, b"the storage element failed, as it was set to\n")
            return
        partly.replace(place)
        self.server.luck.count("PUT manifest" if luck_name(self.path) == "manifest.json" else "PUT")
        self._answer(201, b"")

    def _serve(self, *, body: bool) -> None:
        place = self._place()
        if not place.is_file():
            self._answer(404, b"no such file\n")
            return
        size = place.stat().st_size
        start = self._from(size)
        if not body:
            self._head(200, size)
            return
        longer, well = self.server.luck.draw("GET", self.path)
        time.sleep(longer)
        if not well:
            self.server.luck.count("failed GET")
            self._answer(503, b"the storage element failed, as it was set to\n")
            return
        self._head(206 if start else 200, size - start, f"bytes {start}-{size - 1}/{size}" if start else "")
        with place.open("rb") as file:
            file.seek(start)
            sent = self.connection.sendfile(file, start)
        self.server.luck.count("bytes out", sent)
        self.server.luck.count("GET manifest" if luck_name(self.path) == "manifest.json" else "GET")

    def _from(self, size: int) -> int:
        """Where a resumed transfer begins."""
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and asked.endswith("-") and asked[6:-1].isdigit() and int(asked[6:-1]) < size:
            return int(asked[6:-1])
        return 0

    def _place(self) -> Path:
        place = (self.server.folder / self.path.lstrip("/")).resolve()
        return place if place.is_relative_to(self.server.folder) else self.server.folder / "outside"

    def _head(self, status: int, length: int, covers: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if covers:
            self.send_header("Content-Range", covers)
        self.end_headers()

    def _answer(self, status: int, text: bytes) -> None:
        self._head(status, len(text))
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing: what happened is counted."""


class StorageServer(ThreadingHTTPServer):
    """The storage element, on the loopback interface."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, luck: Luck, port: int = 0) -> None:
        self.folder, self.luck = folder.resolve(), luck
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A storage element over HTTP whose delay and failures are set.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0, metavar="S", help="mean extra seconds of an access")
    parser.add_argument("--spread", type=float, default=0.05, help="standard deviation of the delay as a share of it")
    parser.add_argument("--failure", type=float, default=0.0, help="probability that an access fails")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    server = StorageServer(args.folder, Luck(args.seed, args.delay, args.failure, args.spread), args.port)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
