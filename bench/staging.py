"""Staging: how fast a pilot brings a file, with its SHA-256, beside plain copies of the same bytes; what storage sends when many want one file; what a hit costs.

    just bench staging
    just bench staging --bytes 7000000000 --rounds 5 --folder /scratch

Every arm ends with `fdatasync` of the file, so that all of them have brought it to the disk; the source is in the page cache for all. `dd` copies with blocks of 1 MiB.
The raw copy over loopback is a socket that is filled by `sendfile` and emptied into the file; the pilot's is HTTP from a server that uses the same
`sendfile`. Pairs are interleaved in changing order. On a machine that has other work, `--ahead` runs each arm ahead of it, for the seconds that it takes (as root). With `--memory` the same once more on a tmpfs without `fdatasync`, where SHA-256 itself is the bound.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import Run, keep, leave, paired, pressure, rates
from forestay_pilot.cache.cache import Cache, CacheSettings
from forestay_pilot.cache.cache_changes import CacheChanges
from forestay_pilot.staging.bring import bring
from forestay_pilot.staging.single_flight import SingleFlight
from forestay_pilot.staging.staging import stage_in
from forestay_pilot.staging.transfer import FileLocation, TransferContext, TransferTerms

GOALS = {"disk": 0.92, "loopback": 0.90, "amplification": 1.00, "hit": 10.0}
BLOCK = 1 << 20


def journey() -> TransferContext:
    return TransferContext(TransferTerms(), lambda: False)


class Sender(multiprocessing.Process):
    """Sends one file to whoever connects: bare to the one port, as HTTP to the other. What it sent is counted."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self.raw, self.web = (socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(2))
        self.sent = multiprocessing.Value("q", 0)

    def run(self) -> None:
        threading.Thread(target=self._accept, args=(self.raw, self._send), daemon=True).start()
        self._accept(self.web, self._answer)

    @staticmethod
    def _accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        while True:
            caller, _ = listener.accept()
            threading.Thread(target=serve, args=(caller,), daemon=True).start()

    def _send(self, caller: socket.socket, *, head: bool = False) -> None:
        with caller, self._path.open("rb") as source:
            size = os.fstat(source.fileno()).st_size
            if head:
                caller.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n".encode())
            sent = caller.sendfile(source)
            with self.sent.get_lock():
                self.sent.value += sent

    def _answer(self, caller: socket.socket) -> None:
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += caller.recv(65536)
        self._send(caller, head=True)


def raw_copy(port: int, target: Path) -> None:
    """The least a copy over a socket can be: receive, write."""
    buffer = memoryview(bytearray(BLOCK))
    with socket.create_connection(("127.0.0.1", port)) as wire, target.open("wb", buffering=0) as sink:
        while count := wire.recv_into(buffer):
            left = buffer[:count]
            while left:
                left = left[sink.write(left) :]


def dd(source: Path, target: Path) -> None:
    command = ["dd", f"if={source}", f"of={target}", "bs=1M", "status=none"]
    subprocess.run(command, check=True)


@contextmanager
def ahead_of_all(*, wanted: bool, sender: int) -> Iterator[None]:
    """At real-time priority, programs that are started meanwhile too."""
    if not wanted:
        yield
        return
    for pid in (0, sender):
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        for pid in (0, sender):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def measured(arm: str, size: int, target: Path, deed: Callable[[], object], *, synced: bool) -> Run:
    began, cpu = time.perf_counter(), time.process_time()
    deed()
    if synced:
        with target.open("rb") as file:
            os.fdatasync(file.fileno())
    seconds = time.perf_counter() - began
    run = Run(
        arm=arm,
        operations=size,
        seconds=seconds,
        cpu={"pilot": time.process_time() - cpu},
        pressure=pressure(),
        load=os.getloadavg()[0],
    )
    target.unlink()
    print(f"  {arm:<24} {run.rate / 1e6:>8.0f} MB/s  (load {run.load:.1f})", file=sys.stderr)
    return run


def transfers(folder: Path, args: argparse.Namespace, *, synced: bool, prefix: str = "") -> list[Run]:
    """The four arms, interleaved."""
    source, target = folder / "source", folder / "target"
    digest = made(source, args.bytes)
    sender = Sender(source)
    sender.start()
    raw, web = (sock.getsockname()[1] for sock in (sender.raw, sender.web))
    known = {"size": args.bytes, "sha256": digest}
    arms: dict[str, Callable[[], object]] = {
        "dd": lambda: dd(source, target),
        "pilot, a file": lambda: bring([FileLocation("file", str(source))], str(target), journey(), **known),
        "raw loopback": lambda: raw_copy(raw, target),
        "pilot, HTTP": lambda: bring(
            [FileLocation("http", f"http://127.0.0.1:{web}/f", private=True)], str(target), journey(), **known
        ),
    }  # fmt: skip
    runs: list[Run] = []
    try:
        for number in range(args.rounds + 1):
            names = list(arms)
            random.Random(number).shuffle(names)
            for arm in names:
                with source.open("rb") as again:  # everything in memory, for every arm
                    while again.read(1 << 24):
                        pass
                target.unlink(missing_ok=True)
                os.sync()
                with ahead_of_all(wanted=args.ahead, sender=sender.pid or 0):
                    run = measured(prefix + arm, args.bytes, target, arms[arm], synced=synced)
                if number:  # the first round warms up
                    runs.append(run)
    finally:
        sender.kill()
        sender.join()
        source.unlink()
    return runs


def made(path: Path, size: int) -> str:
    digest, chance, left = hashlib.sha256(), random.Random(1), size
    with path.open("wb") as sink:
        while left:
            piece = chance.randbytes(min(left, 1 << 24))
            sink.write(piece)
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def amplification(folder: Path, size: int, wanting: int) -> float:
    """Bytes that storage sends for so many jobs that want one file at once, by the bytes of the file."""
    source = folder / "shared"
    digest = made(source, size)
    sender = Sender(source)
    sender.start()
    fields = {
        "name": "f",
        "source": "lfn:f",
        "file": "lfn:f",
        "sha256": digest,
        "bytes": size,
        "from": [{"kind": "http", "url": f"http://127.0.0.1:{sender.web.getsockname()[1]}/f", "private": True}],
    }
    gate = threading.Barrier(wanting)

    def want(number: int) -> None:
        flight = SingleFlight(str(folder / "flights"))
        place = folder / f"job-{number}"
        place.mkdir()
        gate.wait()
        stage_in([fields], str(place), sequential=True, stopped=lambda: False, flight=flight)

    try:
        with ThreadPoolExecutor(wanting) as pool:
            for future in [pool.submit(want, number) for number in range(wanting)]:
                future.result()
        time.sleep(0.2)  # the sender counts after the last byte
        sent: int = sender.sent.value
        return sent / size
    finally:
        sender.kill()
        sender.join()


def hits(folder: Path, many: int) -> tuple[list[float], list[float]]:
    """Seconds of hits in the cache, and of bare hard links, in turns of a hundred."""
    cache = Cache(CacheSettings(str(folder / "cache"), 1 << 30), CacheChanges())
    job, file = folder / "job", folder / "file"
    job.mkdir()
    file.write_bytes(b"x" * 4096)
    digest = hashlib.sha256(b"x" * 4096).hexdigest()
    cache.keep("lfn:f", str(file), size=4096, sha256=digest)
    place = cache.area.place(digest)
    ours, links = [], []
    for turn in range(many // 100):
        names = [str(job / f"{turn}-{number}") for number in range(200)]
        began = time.perf_counter()
        for name in names[:100]:
            os.link(place, name)
        middle = time.perf_counter()
        for name in names[100:]:
            assert cache.give("lfn:f", name, claim=f"c{turn}", sha256=digest, size=4096)
        ended = time.perf_counter()
        links.append((middle - began) / 100)
        ours.append((ended - middle) / 100)
        cache.release(f"c{turn}")
        for name in names:
            os.unlink(name)
    cache.close()
    return ours, links


@contextmanager
def place_for(folder: str | None) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-staging-", dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> None:
    """Measure; exit code 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=700_000_000, help="of the file (700 MB, as in the paper)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--wanting", type=int, default=8, help="jobs that want one file at once")
    parser.add_argument("--hits", type=int, default=20_000)
    parser.add_argument("--folder", help="a folder on the disk to measure")
    parser.add_argument("--memory", action="store_true", help="once more on a tmpfs, without fdatasync")
    parser.add_argument(
        "--ahead", action="store_true", help="at real-time priority, where other work cannot be stopped"
    )
    parser.add_argument("--smoke", action="store_true", help="small sizes, which prove only that it runs")
    args = parser.parse_args()
    if args.smoke:
        os.environ["BENCH_SMOKE"] = "1"
        args.bytes, args.rounds, args.hits = 20_000_000, 1, 1000
    figures: dict[str, Any] = {}
    with place_for(args.folder) as folder:
        runs = transfers(folder, args, synced=True)
        figures["of dd"] = paired(rates(runs, "pilot, a file"), rates(runs, "dd"))
        figures["of raw loopback"] = paired(rates(runs, "pilot, HTTP"), rates(runs, "raw loopback"))
        figures["amplification"] = amplification(folder, min(args.bytes, 100_000_000), args.wanting)
        ours, links = hits(folder, args.hits)
        figures["hit by hard link"] = paired(ours, links)
        took = {"hit, seconds": ours, "hard link, seconds": links}
    if args.memory:
        with place_for("/dev/shm") as folder:  # noqa: S108 - to be measured
            more = transfers(folder, args, synced=False, prefix="memory: ")
        runs += more
        for name, over, under in (
            ("of dd in memory", "memory: pilot, a file", "memory: dd"),
            ("of raw loopback in memory", "memory: pilot, HTTP", "memory: raw loopback"),
        ):
            figures[name] = paired(rates(more, over), rates(more, under))
    for name, value in figures.items():
        print(f"{name}: {value}")
    reached = (
        figures["of dd"].median >= GOALS["disk"]
        and figures["of raw loopback"].median >= GOALS["loopback"]
        and figures["amplification"] <= GOALS["amplification"]
        and figures["hit by hard link"].median <= GOALS["hit"]
    )
    print("goals: " + ("reached" if reached else "missed"), "(≥ 0.92, ≥ 0.90, ≤ 1.00, ≤ 10)")
    keep("staging", runs, figures | took)
    leave(reached=reached)


if __name__ == "__main__":
    main()
