"""Faults of the table that no other test injects; `just faults` runs them, the continuous integration does not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from tests import servers
from tests.live.run_site import run_site
from tests.live.test_runs import CHAIN, SCATTER, named
from tests.system.matrix.cut_wire import cut_wire
from tests.system.matrix.room import Room, room
from tests.system.matrix.site import FailureSite, failure_site
from tests.system.matrix.site import until as patiently
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import until

from forestay.client import ApiError, ForestayClient, Unavailable, wait
from forestay.client.api.schemas import NewJob, SpecificationJson

pytestmark = pytest.mark.slow

SHORT: SpecificationJson = {"name": "short", "command": ["sh", "-c", "sleep 0.1"]}
SHORT_LEASE = 4


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path, lease=SHORT_LEASE, scan_every=0.5) as running:
        yield running


@contextmanager
def calm(site: FailureSite) -> Iterator[Room]:
    with room(site, failing=False) as where:
        yield where


def completed(where: Room, names: list[str], patience: float = 120) -> None:
    known: Any = wait(where.operator, names, timeout=patience).known
    assert {known[name]["state"] for name in names} == {"completed"}


def submit(client: ForestayClient, many: int, key: str | None = None) -> list[str]:
    return [
        accepted_json["id"] for accepted_json in client.submit([cast(NewJob, {}) for _ in range(many)], SHORT, key=key)
    ]


@pytest.mark.live
async def test_an_orchestrator_that_is_cut_off_from_temporal_goes_on(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path, orchestrator=False, relay_patience=0.3) as site:
        known = site.domain.settings()
        settings: dict[str, Any] = {name: getattr(known, name) for name in ("temporal_namespace", "task_queue")}
        with cut_wire(f"http://{servers.temporal()}") as wire:
            settings["temporal"] = urlsplit(wire.url).netloc
            async with processes(site.domain, tmp_path, **settings) as running:
                running._start("orchestrator")
                site.hold_back = named("first")
                chain = await site.start(CHAIN)
                many = await site.start(SCATTER, n=300)

                async def begun() -> bool:
                    return bool(site.kept) and len(site.ran) > 20

                await until(begun, "both runs to be under way", 120)
                wire.cut()
                site.hold_back = lambda _claim: False
                await site.let_go()

                async def missed() -> bool:
                    return wire.refused >= 2

                await until(missed, "the orchestrator to be refused", 120)
                wire.recover()
                assert (await site.ended(chain, 120)).state == "completed"
                assert (await site.ended(many, 120)).state == "completed"
                assert sorted(site.ran) == sorted({*(f"many[{n}]" for n in range(300)), "last", "second"})


async def test_a_server_without_descriptors_loses_nothing_it_accepted(site: FailureSite) -> None:
    def scenario() -> None:
        with calm(site) as where:
            accepted = submit(where.client, 5)
            process = site.server.process
            limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            used = len(os.listdir(f"/proc/{process.pid}/fd"))
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 4, limits[1]))
            address = urlsplit(site.server.url)
            crowd = [socket.create_connection((address.hostname or "", address.port or 0)) for _ in range(60)]
            refused = 0
            with site.client_at(site.server.url, where.tenant) as late:
                try:
                    accepted += submit(late, 1, key="in need")
                except (ApiError, Unavailable):
                    refused += 1
            assert process.poll() is None
            for sock in crowd:
                sock.close()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
            with site.client_at(site.server.url, where.tenant) as again:
                (late_job,) = submit(again, 1, key="in need")
            where.host()
            names = sorted({*accepted, late_job})
            completed(where, names)
            # What was not answered was made once at most: the same key gives the same job.
            assert sorted(job["id"] for job in where.operator.find_jobs({"name": "short"}).jobs) == names
            assert refused in (0, 1)

    await asyncio.to_thread(scenario)


async def test_a_document_that_nobody_can_read_stops_nobody(site: FailureSite) -> None:
    def scenario() -> None:
        with calm(site) as where:
            (poison,) = submit(where.client, 1)
            (store,) = site.folder.glob("fs_*.db")
            with contextlib.closing(sqlite3.connect(store, timeout=30)) as open_store, open_store:
                done = open_store.execute("UPDATE jobs SET document = ? WHERE id = ?", (b'{"id": 7, "state"', poison))
                assert done.rowcount == 1
            where.host()
            completed(where, submit(where.client, 5))
            assert site.server.process.poll() is None
            assert site.reconciler.process.poll() is None

    await asyncio.to_thread(scenario)


async def test_when_most_pilots_fall_silent_their_jobs_are_run_by_the_rest(site: FailureSite) -> None:
    def scenario() -> None:
        with calm(site) as where:
            hosts = [where.host(f"h{number}", cpus="1") for number in range(5)]
            gate = where.folder / "gate"
            slow: SpecificationJson = {"name": "slow", "command": ["sh", "-c", f"test -e {gate} || sleep 600"]}
            names = [
                accepted_json["id"] for accepted_json in where.client.submit([cast(NewJob, {}) for _ in range(5)], slow)
            ]
            patiently(
                lambda: all(where.operator.job(name)["state"] == "running" for name in names), "all of them to run"
            )
            for host in hosts[1:]:
                os.killpg(host.started.process.pid, signal.SIGSTOP)
            gate.touch()
            hosts[0].started.kill()
            where.host("fresh", cpus="4")
            completed(where, names, 180)
            assert all(where.operator.job(name)["attempt"] >= 2 for name in names)

    await asyncio.to_thread(scenario)
