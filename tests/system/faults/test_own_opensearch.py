"""The only node of OpenSearch is killed, its disk is full, its index is lost; `just faults-stores` runs them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from tests.live.run_site import TENANT as RUNS
from tests.live.run_site import RunSite, run_site
from tests.live.test_runs import SCATTER
from tests.system.faults.load import Site, figures, site_under_load
from tests.system.faults.own_stores import OPENSEARCH, OwnServers, own_servers
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.ports.jobs.job_store import JobQuery

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.pair]

TIMES = int(os.environ.get("FORESTAY_FAULT_TIMES", "2"))
LOST = int(os.environ.get("FORESTAY_FAULT_JOBS", "1000"))
"""Jobs of the run whose index is lost."""
SMALL = 384 << 20
"""Bytes of the disk."""
BACK = 90.0
"""Seconds after which work goes on, the start of the JVM among them, on a machine that does nothing else."""
SLOW_MACHINE = 6
"""By how much a busy machine may be slower."""


@pytest.fixture(scope="module")
def node() -> Iterator[OwnServers]:
    with own_servers(OPENSEARCH, disk=SMALL) as own:
        yield own


@asynccontextmanager
async def site(node: OwnServers, folder: Path) -> AsyncIterator[tuple[Site, str]]:
    prefix = f"fs-{uuid4().hex[:8]}"
    domain = Domain(f"opensearch://{node.opensearch}/{prefix}?timeout=20", folder / "state")
    async with site_under_load(domain, folder) as running:
        yield running, prefix


async def acknowledged(node: OwnServers, prefix: str, names: list[str]) -> list[str]:
    """Those of the jobs that the node has."""
    reply = await node.ask("POST", f"/{prefix}-jobs/_mget", {"ids": names})
    return [doc["_id"] for doc in reply["docs"] if doc.get("found")]


def blocked(node: OwnServers, prefix: str) -> Callable[[], Awaitable[bool]]:
    async def all_of_it() -> bool:
        reply = await node.ask("GET", f"/{prefix}-jobs/_settings")
        return all("blocks" in entry["settings"]["index"] for entry in reply.values())

    return all_of_it


def unblocked(node: OwnServers) -> Callable[[], Awaitable[bool]]:
    async def none_left() -> bool:
        reply = await node.ask("GET", "/_cluster/settings?flat_settings=true")
        return "cluster.blocks.create_index" not in reply["persistent"]

    return none_left


async def test_the_only_node_is_killed(node: OwnServers, tmp_path: Path, record_property: Any) -> None:
    waits = []
    async with site(node, tmp_path) as (running, prefix):
        load = running.load
        for _ in range(TIMES):
            await load.more(10)
            await node.kill(OPENSEARCH)
            struck, known = time.monotonic(), list(load.accepted)
            await node.launch(OPENSEARCH)
            up = time.monotonic() - struck
            assert await acknowledged(node, prefix, known) == known
            waits.append((await load.done_since(struck, BACK * SLOW_MACHINE), up))
    text = ", ".join(f"{wait:.0f} s of which {up:.0f} s until the node answers" for wait, up in waits)
    figures(record_property, f"{TIMES} kills, work went on after {text}", load)
    assert load.counts["extra"] <= 4 * TIMES


async def test_the_disk_of_opensearch_is_full(node: OwnServers, tmp_path: Path, record_property: Any) -> None:
    """Past the flood stage nothing is accepted, what runs may end, its end is kept by the pilot; with space all of it goes on, without a hand."""
    disk = node.disks[OPENSEARCH]
    limits = {"low": "60mb", "high": "50mb", "flood_stage": "40mb"}
    settings = {f"cluster.routing.allocation.disk.watermark.{name}": value for name, value in limits.items()}
    settings |= {"cluster.routing.allocation.disk.threshold_enabled": "true", "cluster.info.update.interval": "10s"}
    await node.ask("PUT", "/_cluster/settings", {"persistent": settings})
    try:
        async with site(node, tmp_path) as (running, prefix):
            load = running.load
            long = await load.submit(seconds=40)
            await load.begun(long)
            disk.fill(leave=20 << 20)
            await load.refusing()
            await until(blocked(node, prefix), "the block", 60)
            await load.takes_nothing_through(long)
            assert (await running.client.get(f"/v1/jobs/{long}")).json()["state"] == "running", "its end waits"
            disk.empty()
            back = await load.done_since(time.monotonic(), 180)
            await until(unblocked(node), "the block on new indexes to be lifted too", 60)
        words = f"work went on {back:.0f} s after there was space again, refused meanwhile: {dict(load.refused)}"
        figures(record_property, words, load)
        assert load.refused.keys() <= {"503", "429", "ReadTimeout"}
        assert load.counts["extra"] == 0
    finally:
        disk.empty()
        await node.ask("PUT", "/_cluster/settings", {"persistent": dict.fromkeys(settings)})


async def test_the_disk_of_opensearch_is_full_to_the_last_byte(
    node: OwnServers, tmp_path: Path, record_property: Any
) -> None:
    """Nobody looked in time: the log of a shard cannot be written, and the shard is given up until there is space."""
    disk = node.disks[OPENSEARCH]
    try:
        async with site(node, tmp_path) as (running, _):
            load = running.load
            long = await load.submit(seconds=10)
            await load.begun(long)
            disk.fill()
            await load.refusing()
            await load.takes_nothing_through(long)
            disk.empty()
            back = await load.done_since(time.monotonic(), 300)
        words = f"work went on {back:.0f} s after there was space again, refused meanwhile: {dict(load.refused)}"
        figures(record_property, words, load)
        assert load.refused.keys() <= {"503", "429", "ReadTimeout"}
    finally:
        disk.empty()


async def test_the_index_of_jobs_is_lost(
    node: OwnServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """Without a backup: nothing is accepted until a process is started again and makes the index; then open runs make their jobs again."""
    monkeypatch.setenv("FORESTAY_TEST_OPENSEARCH", f"http://{node.opensearch}")
    async with run_site("opensearch", tmp_path, pilots=0, look_after=5.0) as running:
        store = running.server.services.components.store
        pilot = await ScriptedPilot.register(running.server, RUNS)
        run = await running.start(SCATTER, n=LOST)
        await until(_made(running, LOST), "the jobs of the run", 300)
        fields, late = (await _claimed(pilot, 2))[:2]
        assert await pilot.end(fields) == ["committed"]
        index = f"{urlsplit(running.domain.store).path.strip('/')}-jobs"
        await node.ask("DELETE", f"/{index}-000001")
        body = {"specification": {"name": "mine", "command": ["true"]}, "jobs": [{}]}
        answer = await running.server.person("submitter", tenant=RUNS).post("/v1/jobs", json=body)
        assert answer.status_code == 503, answer.text
        lost = time.monotonic()
        await store.open()  # as every process does when it is started
        await until(_made(running, LOST - 1), "the jobs to be made again", 300)
        back = time.monotonic() - lost
        (result,) = await pilot.end(late)
        assert result != "committed", "an end of the time before counts no more"
        (again,) = (await store.get([late["job"]])).values()
        assert again.document.generation > late["generation"]
        running.pilots.append(pilot)
        flying = asyncio.create_task(running.fly(pilot))
        try:
            assert (await running.ended(run, 600)).state == "completed"
        finally:
            flying.cancel()
        assert len(running.ran) == len(set(running.ran)), "run twice"
    record_property("figures", f"{LOST} jobs of an open run, made again {back:.0f} s after the index was there again")


def _made(running: RunSite, many: int) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        store = running.server.services.components.store
        await store.refresh()
        return sum((await store.count(JobQuery(), by="state")).values()) >= many

    return there


async def _claimed(pilot: ScriptedPilot, many: int) -> list[dict[str, Any]]:
    claims: list[dict[str, Any]] = []

    async def enough() -> bool:
        claims.extend(await pilot.claim(most=many - len(claims), wait=2))
        return len(claims) >= many

    await until(enough, "claims", 120)
    return claims
