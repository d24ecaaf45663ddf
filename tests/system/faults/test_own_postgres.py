"""PostgreSQL is killed under runs, and its disk and that of Temporal are full; `just faults-stores` runs them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests import servers
from tests.live.own_temporal import temporal_on_postgres
from tests.live.run_site import new_namespace
from tests.live.test_site_profile import answers
from tests.system.chaos.processes import free_port, launch
from tests.system.faults.load import Site, figures, site_under_load
from tests.system.faults.own_stores import POSTGRES, Disk, own_servers, small_disk
from tests.unit.apps.server.processes import Started
from tests.unit.apps.server.running import Domain, until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.pair]

TIMES = int(os.environ.get("FORESTAY_FAULT_TIMES", "3"))
SMALL = 320 << 20
JOBS = 40
"""Of a run."""


async def test_postgres_is_killed_under_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """The jobs and Temporal's own store are on it."""
    waits = []
    with own_servers(POSTGRES) as own:
        monkeypatch.setenv("FORESTAY_TEST_POSTGRES", own.postgres)
        with temporal_on_postgres(tmp_path) as temporal:
            monkeypatch.setenv("FORESTAY_TEST_TEMPORAL", temporal)
            await answers(temporal)
            known = {"temporal": temporal, "temporal_namespace": await new_namespace(), "relay_patience": 1}
            domain = Domain(own.postgres, tmp_path / "state")
            async with site_under_load(domain, tmp_path, orchestrator=True, **known) as site:
                for _ in range(TIMES):
                    begun = len(site.run_starts())
                    await site.start_run(JOBS)
                    await until(_more(site, begun + 5), "the run to be under way", 180)
                    await own.kill(POSTGRES)
                    struck = time.monotonic()
                    await own.launch(POSTGRES)
                    waits.append(await site.load.done_since(struck, 360))
                await site.runs_end(JOBS)
    text = ", ".join(f"{wait:.0f}" for wait in waits)
    figures(
        record_property, f"{TIMES} kills under {TIMES} runs of {JOBS + 1} jobs, work went on after {text} s", site.load
    )


async def test_the_disk_of_postgres_is_full(tmp_path: Path, record_property: Any) -> None:
    with own_servers(POSTGRES, disk=SMALL) as own:
        disk = own.disks[POSTGRES]
        async with site_under_load(Domain(own.postgres, tmp_path / "state"), tmp_path) as site:
            load, backs = site.load, []
            for _ in range(TIMES):
                long = await load.submit(seconds=10)
                await load.begun(long)
                disk.fill()
                await load.refusing()
                await load.takes_nothing_through(long)
                disk.empty()
                freed = time.monotonic()
                # Where it could not even write its log, PostgreSQL has ended itself; a supervisor starts it again.
                await own.launch(POSTGRES)
                backs.append(await load.done_since(freed, 180))
    text = ", ".join(f"{back:.0f}" for back in backs)
    figures(
        record_property,
        f"full {TIMES} times, work went on {text} s after there was space, refused: {dict(load.refused)}",
        load,
    )
    assert load.refused.keys() <= {"503", "429", "ReadTimeout"}


async def test_the_disk_of_temporal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    """Its database alone: no run is begun, those under way wait, jobs go on."""
    with small_disk(tmp_path / "small", 64 << 20) as disk:
        port = free_port()
        words = [
            servers.address("FORESTAY_TEST_TEMPORAL_PROGRAM"),
            "server",
            "start-dev",
            "--ip",
            "127.0.0.1",
            "--headless",
        ]
        words += ["--port", str(port), "--log-level", "error", "--db-filename", str(disk.place / "temporal.db")]
        temporal = Started(launch(words, tmp_path / "temporal.log"))
        try:
            await _temporal_full(f"127.0.0.1:{port}", disk, tmp_path, monkeypatch, record_property)
        finally:
            temporal.kill()


async def _temporal_full(
    address: str, disk: Disk, folder: Path, monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setenv("FORESTAY_TEST_TEMPORAL", address)
    await answers(address)
    known = {"temporal": address, "temporal_namespace": await new_namespace(), "relay_patience": 1, "look_after": 20}
    domain = Domain(f"sqlite:///{folder}/jobs.db", folder / "state")
    async with site_under_load(domain, folder, orchestrator=True, **known) as site:
        load, refused = site.load, 0
        for _ in range(TIMES):
            begun = len(site.run_starts())
            await site.start_run(JOBS)
            await until(_more(site, begun + 5), "the run to be under way", 180)
            disk.fill()
            flow = {"forestay": 1, "name": "late", "tasks": {"a": {"command": ["true"]}}}
            stored = await site.client.post("/v1/flows", json={"text": json.dumps(flow)})
            key = {"Idempotency-Key": str(uuid4())}
            late = {"flow": stored.json()["version"]}
            answer = await site.client.post("/v1/runs", json=late, headers=key)
            assert answer.status_code in (429, 503), answer.text
            refused += 1
            await load.done_since(time.monotonic(), 180)  # jobs have nothing to do with it
            disk.empty()

            async def taken(late: object = late, key: dict[str, str] = key) -> str | None:
                answer = await site.client.post("/v1/runs", json=late, headers=key)
                return str(answer.json()["id"]) if answer.status_code in (200, 201) else None

            run = await until(taken, "the same run to be taken", 180)

            async def over(run: str = run) -> bool:
                return bool((await site.client.get(f"/v1/runs/{run}")).json().get("ended"))

            await until(over, "it to end", 180)
        await site.runs_end(JOBS)
    figures(
        record_property, f"full {TIMES} times under runs of {JOBS + 1} jobs, {refused} starts refused meanwhile", load
    )


def _more(site: Site, many: int) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return len(site.run_starts()) >= many

    return there
