"""One transfer for all jobs and pilots of a host that want the same file at the same time."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.storage_server import Failure, Storage, serving

from forestay_pilot.staging.single_flight import SingleFlight
from forestay_pilot.staging.staging import StagingError, StoppedError, stage_in

CONTENT = random.Random(11).randbytes(400_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    (tmp_path / "se").mkdir()
    (tmp_path / "se" / "f").write_bytes(CONTENT)
    with serving(tmp_path / "se") as storage:
        yield storage


def until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.005)


def bring(tmp_path: Path, storage: Storage, number: int, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    folder = tmp_path / f"job-{number}"
    folder.mkdir()
    results: list[dict[str, Any]] = []
    fields = {
        "name": "f",
        "source": "lfn:f",
        "file": "lfn:f",
        "sha256": SHA256,
        "from": [{"kind": "http", "url": f"{storage.url}/f", "private": True}],
        "transfer": {"tries": 1},
    }
    flight = SingleFlight(str(tmp_path / "flights"))
    stage_in([fields], str(folder), sequential=True, stopped=stopped, flight=flight, note=results.append)
    assert (folder / "f").read_bytes() == CONTENT
    return results[0]


def waiting(tmp_path: Path) -> int:
    """How many want the file now."""
    with open("/proc/locks") as locks:
        held = locks.read()
    paths = list((tmp_path / "flights").glob("*/interest"))
    return held.count(f":{paths[0].stat().st_ino} ") if paths else 0


def test_many_misses_make_one_transfer(tmp_path: Path, storage: Storage) -> None:
    storage.hold = threading.Event()
    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(bring, tmp_path, storage, number) for number in range(12)]
        until(lambda: waiting(tmp_path) == 12, "all twelve")
        storage.hold.set()
        results = [future.result() for future in futures]
    assert storage.bytes_out == len(CONTENT)
    assert sorted(result["from"] for result in results) == ["element"] + ["neighbour"] * 11
    assert not (tmp_path / "flights").exists(), "the last one clears up"


def test_each_has_a_file_of_its_own(tmp_path: Path, storage: Storage) -> None:
    storage.hold = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(bring, tmp_path, storage, number) for number in range(2)]
        until(lambda: waiting(tmp_path) == 2, "both")
        storage.hold.set()
        for future in futures:
            future.result()
    with (tmp_path / "job-0" / "f").open("ab") as mine:
        mine.write(b"changed")
    assert (tmp_path / "job-1" / "f").read_bytes() == CONTENT


def test_one_alone_moves_the_file_and_copies_nothing(tmp_path: Path, storage: Storage) -> None:
    assert bring(tmp_path, storage, 1)["from"] == "element"
    assert bring(tmp_path, storage, 2)["from"] == "element"
    assert storage.bytes_out == 2 * len(CONTENT), "without a cache nothing is kept"


def test_a_failure_is_that_of_all_who_waited_and_of_nobody_later(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(status=403)]
    storage.hold = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(bring, tmp_path, storage, number) for number in range(5)]
        until(lambda: waiting(tmp_path) == 5, "all five")
        storage.hold.set()
        errors = [future.exception() for future in futures]
    assert [(type(error), getattr(error, "error", "")) for error in errors] == [(StagingError, "HTTP 403")] * 5
    assert len(storage.asked) == 1
    bring(tmp_path, storage, 9)


def test_one_that_is_stopped_lets_the_next_go_on(tmp_path: Path, storage: Storage) -> None:
    storage.hold = threading.Event()
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(bring, tmp_path, storage, 1, stop.is_set)
        until(lambda: len(storage.asked) == 1, "the first")
        second = pool.submit(bring, tmp_path, storage, 2)
        until(lambda: waiting(tmp_path) == 2, "both")
        stop.set()
        storage.hold.set()
        assert isinstance(first.exception(), StoppedError)
        assert second.result()["from"] == "element"


_PILOT = """
import sys
from forestay_pilot.staging.single_flight import SingleFlight
from forestay_pilot.staging.staging import stage_in
url, area, folder, sha256 = sys.argv[1:]
given = {"name": "f", "source": "lfn:f", "file": "lfn:f", "sha256": sha256, "from": [{"kind": "http", "url": url, "private": True}], "transfer": {"piece": 1 << 14}}
stage_in([given], folder, sequential=True, stopped=lambda: False, flight=SingleFlight(area))
"""


def test_a_leader_that_is_killed_is_followed_at_once_from_where_it_was(tmp_path: Path, storage: Storage) -> None:
    """The lock goes with its process, and what it had brought is not fetched again."""
    half = threading.Event()
    sent = 12 << 14

    original = storage.next_failure

    def first_hangs() -> Failure:
        if not half.is_set():
            half.set()
            return Failure(after=sent, hang=True)
        return original()

    storage.next_failure = first_hangs  # type: ignore[method-assign]
    (tmp_path / "leader").mkdir()
    words = [f"{storage.url}/f", str(tmp_path / "flights"), str(tmp_path / "leader"), SHA256]
    leader = subprocess.Popen([sys.executable, "-c", _PILOT, *words])
    try:
        drafts = tmp_path / "flights"
        until(lambda: any(path.stat().st_size >= sent for path in drafts.glob("*/file.staging")), "half of the file")
        with ThreadPoolExecutor(1) as pool:
            follower = pool.submit(bring, tmp_path, storage, 2)
            until(lambda: waiting(tmp_path) == 2, "the follower")
            os.kill(leader.pid, signal.SIGKILL)
            leader.wait()
            assert follower.result(10)["from"] == "element"
    finally:
        leader.kill()
        leader.wait()
        storage.released.set()
    assert storage.ranges() == ["", f"bytes={sent}"]
