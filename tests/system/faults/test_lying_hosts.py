"""Hosts whose disks refuse to write what a job made, and hosts whose clocks are off. `just faults` runs it."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.system.faults.broken_libc import FSYNC, WRITE, BrokenLibc
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site, until

from forestay.client.api.schemas import NewJob, SpecificationJson

pytestmark = [pytest.mark.slow, pytest.mark.pair]

PATIENCE = 300.0
REFUSALS: tuple[tuple[int, int, str], ...] = (
    (FSYNC, errno.EIO, "/manifest.json.tmp"),
    (WRITE, errno.EIO, "/manifest.json.tmp"),
    (WRITE, errno.ENOSPC, "/manifest.json.tmp"),
    (FSYNC, errno.EIO, "/made"),
    (WRITE, errno.ENOSPC, "/made"),
)
TIMES, SPARED = 40, 2
HOUR = 3600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path, lease=4, scan_every=0.5) as running:
        yield running


def submitted(where: Room, script: str, many: int) -> list[str]:
    spec = cast(SpecificationJson, {"name": "lied to", "command": ["sh", "-c", script], "outputs": ["made"]})
    return [accepted_json["id"] for accepted_json in where.client.submit([cast(NewJob, {}) for _ in range(many)], spec)]


def ended(where: Room, names: list[str]) -> list[Any]:
    """The jobs when all have ended."""

    def over() -> list[Any] | None:
        jobs: list[Any] = [where.operator.job(name) for name in names]
        return jobs if all(job["state"] in ("completed", "failed") for job in jobs) else None

    return cast("list[Any]", until(over, "all to end", PATIENCE))


async def test_a_disk_that_refuses_the_manifest_or_an_output_commits_nothing(site: FailureSite) -> None:
    """Two hundred refusals by EIO and ENOSPC of write and fsync: each is a fault, and what is completed is whole."""

    def scenario() -> None:
        libc = BrokenLibc(site.folder / "libc")
        with room(site, failing=False) as where:
            host = where.host("refusing", prepare=libc.prepare)
            for call, error, ends in REFUSALS:
                libc.refuse(call, error, ends, TIMES)
                results = ended(where, submitted(where, "head -c 3000 /dev/urandom > made", TIMES + SPARED))
                failed = [result for result in results if result["state"] == "failed"]
                # A buffer that could not be written is tried once more when its file is closed.
                assert libc.hits == TIMES
                assert len(failed) in (TIMES, TIMES // 2)
                assert {entry["last"]["error"] for entry in failed} == {errno.errorcode[error]}
                for entry in failed:
                    assert entry["winner"] is None
                    assert not list(host.outputs.glob(f"**/{entry['id']}/**/manifest.json")), (
                        "half a commit is to be seen"
                    )
                for result in results:
                    if result["state"] == "completed":
                        assert whole(where, result["id"])

    await asyncio.to_thread(scenario)


def whole(where: Room, job: str) -> bool:
    """Whether everything that a committed manifest names is there as it says."""
    known: Any = where.operator.outputs(job)["manifest"]
    manifest = Path(known["path"])
    content = manifest.read_bytes()
    files = json.loads(content)["files"]
    return (
        hashlib.sha256(content).hexdigest() == known["sha256"]
        and len(files) == 1
        and all(
            hashlib.sha256((manifest.parent / file["path"]).read_bytes()).hexdigest() == file["sha256"]
            for file in files
        )
    )


CLOCKS: dict[str, dict[str, float]] = {
    "ahead": {"wall": HOUR},
    "behind": {"wall": -HOUR},
    "twice": {"gain": 1.0},
    "half": {"gain": -0.5},
}
JOBS = 50


async def test_no_job_is_taken_from_a_host_whose_clock_is_off(site: FailureSite) -> None:
    """An hour ahead, an hour behind, jumping between the two, at twice and at half the rate: every job runs once, its long one for several leases."""

    def scenario() -> None:
        with room(site, failing=False) as where:
            libcs = {name: BrokenLibc(site.folder / name) for name in [*CLOCKS, "jumping"]}
            for name, libc in libcs.items():
                # A host whose clock is off when it starts is not taken at all; these go wrong later.
                where.host(name, slots="2", time_left=str(86_400), prepare=libc.prepare)
                libc.clocks(**CLOCKS.get(name, {}))
            over = threading.Event()
            jumps = threading.Thread(target=jump, args=(libcs["jumping"], over))
            jumps.start()
            try:
                # A host's silence would be noticed after the lease and ten seconds.
                note = f"echo begun >> {where.folder}/ran-$FORESTAY_JOB"
                long = submitted(where, f"{note}; sleep 25; echo 1 > made", len(libcs))
                short = submitted(where, f"{note}; sleep 0.2; echo 1 > made", JOBS)
                results = ended(where, [*long, *short])
            finally:
                over.set()
                jumps.join()
            # One whose clock runs fast may think its lease lost, and give back what it has not begun: that costs a claim, and no run.
            assert {
                (result["state"], result["releases"], result["failures"], result["overlap_possible"])
                for result in results
            } == {("completed", 0, 0, False)}
            assert {(where.folder / f"ran-{result['id']}").read_text() for result in results} == {"begun\n"}
            assert {result["last"]["host"] for result in results} == set(libcs), "a host ran nothing"
            assert {pilot["host"] for pilot in where.operator.pilots(state="alive")} == set(libcs)

    await asyncio.to_thread(scenario)


def jump(libc: BrokenLibc, over: threading.Event) -> None:
    """The wall clock leaps by two hours, to and fro."""
    ahead = False
    while not over.wait(0.5):
        ahead = not ahead
        libc.clocks(wall=HOUR if ahead else -HOUR)
