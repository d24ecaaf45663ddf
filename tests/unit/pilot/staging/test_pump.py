"""Reading, writing and hashing at the same time."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from pathlib import Path

import pytest

from forestay_pilot.process import libc
from forestay_pilot.staging import pump
from forestay_pilot.staging.pump import SinkError


def run(content: bytes, target: Path, *, piece: int, stop_after: int | None = None) -> tuple[str, int]:
    digest, moved, at = hashlib.sha256(), [0], [0]

    def fill(buffer: memoryview) -> int:
        if stop_after is not None and at[0] >= stop_after:
            raise ConnectionError("broken off")
        part = content[at[0] : at[0] + len(buffer)]
        buffer[: len(part)] = part
        at[0] += len(part)
        return len(part)

    def count(more: int) -> None:
        moved[0] += more

    sink = os.open(target, os.O_WRONLY | os.O_CREAT)
    try:
        pump.pump(fill, sink, digest.update, piece=piece, moved=count)
    except ConnectionError:
        assert stop_after is not None
    finally:
        os.close(sink)
    return digest.hexdigest(), moved[0]


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 4000, 5000, 123_457])
def test_what_is_written_is_what_is_hashed(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    assert run(content, tmp_path / "f", piece=1000) == (hashlib.sha256(content).hexdigest(), size)
    assert (tmp_path / "f").read_bytes() == content


@pytest.mark.parametrize("stop", [0, 1000, 7000])
def test_what_came_before_an_error_is_hashed_whole(tmp_path: Path, stop: int) -> None:
    """So that the next try may go on from there."""
    content = random.Random(1).randbytes(20_000)
    digest, moved = run(content, tmp_path / "f", piece=1000, stop_after=stop)
    assert moved == stop
    assert digest == hashlib.sha256(content[:stop]).hexdigest()


def test_a_full_disk_is_the_sinks_error() -> None:
    sink = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(SinkError) as failed:
            pump.pump(lambda buffer: len(buffer), sink, lambda _: None, piece=1000, moved=lambda _: None)
    finally:
        os.close(sink)
    assert failed.value.error.strerror == "No space left on device"


def test_a_large_file_is_written_out_while_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "_LARGE", 10_000)
    monkeypatch.setattr(pump, "_FLUSH", 5_000)
    asked, seen = [], threading.Event()

    def ask(descriptor: int, at: int, count: int) -> None:
        os.fstat(descriptor)  # still open
        asked.append((at, count))
        seen.set()

    monkeypatch.setattr(libc, "begin_write_out", ask)
    assert run(bytes(9_000), tmp_path / "f", piece=1000)[1] == 9_000
    assert asked == []
    for _ in range(40):  # on a busy machine a file may be whole before its write-out is begun
        run(bytes(50_000), tmp_path / "g", piece=1000)
        if seen.wait(0.5):
            break
    assert seen.is_set()
    assert asked[0] == (0, 10_000)
