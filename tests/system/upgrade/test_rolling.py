"""Two releases on one store and one Temporal: the one before, both together, this one, and back again."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import servers
from tests.live.run_site import new_namespace
from tests.system.upgrade.previous import previous_python
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.apps.compose.stores import open_stores
from forestay.ports.jobs.job_store import DocumentChange, Written

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.pair]

TENANT = "physics"
FLOW = """\
forestay: 1
name: slow-steps
tasks:
  one: {run: "until [ -e FOLDER/one ]; do sleep 0.2; done"}
  two: {after: one, run: "until [ -e FOLDER/two ]; do sleep 0.2; done"}
  three: {after: two, run: "until [ -e FOLDER/three ]; do sleep 0.2; done"}
"""


class Release:
    """The processes of one release."""

    def __init__(self, all_: Processes, python: str) -> None:
        self.all, self.python = all_, python
        self.server: Started | None = None
        self.others: list[Started] = []

    async def start(self) -> Started:
        self.all.python = self.python
        self.server = await self.all.server()
        self.others = [self.all.reconciler(), self.all.orchestrator(), self.all.pilot(TENANT, self.server, slots=4)]
        return self.server

    def stop(self) -> None:
        """In order, as an operator does it."""
        assert self.server is not None
        for started in (*reversed(self.others), self.server):
            started.process.terminate()
            started.process.wait(60)


async def submit(client: httpx.AsyncClient, many: int) -> list[str]:
    body = {"specification": {"command": ["sh", "-c", "sleep 0.05"], "name": "short"}, "jobs": [{}] * many}
    answer = await client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def read(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def all_completed(client: httpx.AsyncClient, jobs: list[str]) -> None:
    async def over() -> bool:
        return all([(await read(client, f"/v1/jobs/{job}"))["state"] == "completed" for job in jobs])

    await until(over, "all jobs to be completed", 180)


async def task_runs(client: httpx.AsyncClient, run: str, task: str) -> None:
    async def runs() -> bool:
        tasks = (await read(client, f"/v1/runs/{run}"))["tasks"]
        return any(other_task["id"].startswith(task) and other_task["state"] == "running" for other_task in tasks)

    await until(runs, f"task {task} to run", 180)


async def test_forward_beside_each_other_and_back(tmp_path: Path) -> None:
    before_python = await asyncio.to_thread(previous_python)
    known = {"temporal": servers.temporal(), "temporal_namespace": await new_namespace(), "relay_patience": 1}
    async with store_room("postgresql", tmp_path) as url:
        domain = Domain(url, tmp_path / "state")
        async with processes(domain, tmp_path, lease=30, **known) as started:
            before, now = Release(started, before_python), Release(started, sys.executable)
            roles = ("submitter", "operator")

            # The release before, alone: jobs, and a run that stays under way through all that follows.
            old = started.client(await before.start(), *roles, tenant=TENANT)
            jobs = await submit(old, 20)
            flow = await old.post("/v1/flows", json={"text": FLOW.replace("FOLDER", str(tmp_path))})
            assert flow.status_code in (200, 201), flow.text
            run = (await old.post("/v1/runs", json={"flow": flow.json()["version"]})).json()["id"]
            await task_runs(old, run, "one")
            await all_completed(old, jobs)

            # Both together, then this one alone.
            new = started.client(await now.start(), *roles, tenant=TENANT)
            jobs += await submit(old, 20) + await submit(new, 20)
            await all_completed(new, jobs)
            assert {(await read(old, f"/v1/jobs/{job}"))["state"] for job in jobs} == {"completed"}
            (tmp_path / "one").touch()
            await task_runs(new, run, "two")
            before.stop()
            jobs += await submit(new, 20)
            await all_completed(new, jobs)
            waits = (await submit_held(new))[0]
            await put_unknown_field(url, waits)
            (tmp_path / "two").touch()
            await task_runs(new, run, "three")

            # And back: what the newer one wrote is read, steered and rewritten by the older, which keeps what it does not know.
            now.stop()
            old = started.client(await before.start(), *roles, tenant=TENANT)
            jobs += await submit(old, 20)
            await all_completed(old, jobs)
            assert (
                await old.post(f"/v1/jobs/{waits}/cancel", json={"reason": "by the older release"})
            ).status_code == 200
            (tmp_path / "three").touch()

            async def ended() -> bool:
                return bool((await read(old, f"/v1/runs/{run}"))["ended"])

            await until(ended, "the run to end", 180)
            assert (await read(old, f"/v1/runs/{run}"))["state"] == "completed"
            for job in jobs:
                fields = await read(old, f"/v1/jobs/{job}/story")
                events = [line["event"] for line in fields["story"]]
                assert events.count("complete") == 1, events
            assert len(jobs) == 100
            assert await unknown_field(url, waits) == {"kept": True}


async def submit_held(client: httpx.AsyncClient) -> list[str]:
    body = {"specification": {"command": ["true"], "name": "held"}, "jobs": [{"hold": True}]}
    answer = await client.post("/v1/jobs", json=body)
    return [job["id"] for job in answer.json()["jobs"]]


async def put_unknown_field(url: str, job: str) -> None:
    """As a release to come would."""
    stores = open_stores(url)
    try:
        stored = (await stores.jobs.get([job]))[job]
        changed = stored.document.having(extra={**stored.document.extra, "of_a_later_release": {"kept": True}})
        (result,) = await stores.jobs.write([DocumentChange(changed, stored.version)])
        assert isinstance(result, Written)
    finally:
        await stores.jobs.close()


async def unknown_field(url: str, job: str) -> object:
    stores = open_stores(url)
    try:
        document = (await stores.jobs.get([job]))[job].document
        assert document.state == "cancelled"
        return document.extra.get("of_a_later_release")
    finally:
        await stores.jobs.close()
