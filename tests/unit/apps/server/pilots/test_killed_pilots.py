"""What becomes of a job when real pilots are killed under it: one with external effects waits for a person at once, one that kills its pilots after the third, without its neighbours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import read, submit, submit_one
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

KILL_THE_PILOT = "echo started >> {starts}; read -r _ _ _ pilot _ < /proc/$PPID/stat; kill -9 $pilot; sleep 300"
"""The payload's parent is the guard, and that one's the pilot."""


async def _held(client: httpx.AsyncClient, job: str) -> str:
    """Wait until the job is held for a person; what the inbox says of it, with all words of its story."""

    async def listed() -> Any:
        groups = (await client.get("/v1/inbox")).json()["groups"]
        return groups if (await read(client, job))["state"] == "faulted" else None

    await until(listed, "the job in the inbox")

    async def due() -> Any:
        return (await client.get("/v1/inbox")).json()["groups"]

    groups = await until(due, "a group in the inbox")
    story = (await client.get(f"/v1/jobs/{job}/story")).json()["story"]
    assert groups[0]["count"] == 1, groups
    return " ".join(line["words"] for line in story)


@pytest.mark.finding("F-B2")
async def test_a_job_with_external_effects_is_not_run_again_after_its_pilot_was_killed(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    starts, gate = tmp_path / "starts", tmp_path / "gate"
    async with processes(own_domain, tmp_path) as running:
        server = await running.server()
        running.reconciler()
        ada = running.client(server, "submitter", "viewer", "operator", tenant=tenant)
        wait = f"echo started >> {starts}; while [ ! -e {gate} ]; do sleep 0.05; done"
        job = await submit_one(ada, command=["sh", "-c", wait], effects="external", max_attempts=3)
        pilot = running.pilot(tenant, server)
        await until(lambda: asyncio.to_thread(starts.exists), "the start of the job")
        running.pilot(tenant, server)
        pilot.kill_alone()
        words = await _held(ada, job)
        assert "external effects" in words
        # The other pilot is alive and takes what it may have.
        other = await submit_one(ada, command=["true"])

        async def done() -> bool:
            return bool((await read(ada, other))["state"] == "completed")

        await until(done, "another job on the pilot that is left")
        assert starts.read_text().splitlines() == ["started"]
        answer = await ada.post(f"/v1/jobs/{job}/retry", json={"reason": "nothing was paid"})
        assert answer.status_code < 300, answer.text
        await asyncio.to_thread(gate.touch)

        async def completed() -> bool:
            return bool((await read(ada, job))["state"] == "completed")

        await until(completed, "the second attempt, which a person allowed")
    assert starts.read_text().splitlines() == ["started"] * 2


@pytest.mark.finding("F-B5")
async def test_a_job_that_kills_its_pilots_is_held_after_the_third(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    starts = tmp_path / "starts"
    async with processes(own_domain, tmp_path) as running:
        server = await running.server()
        running.reconciler()
        ada = running.client(server, "submitter", "viewer", tenant=tenant)
        command = ["bash", "-c", KILL_THE_PILOT.format(starts=starts)]
        job = await submit_one(ada, command=command, max_attempts=9)
        pilots = [running.pilot(tenant, server) for _ in range(4)]
        words = await _held(ada, job)
        assert "3 pilots died while they ran" in words
        other = await submit_one(ada, command=["true"])

        async def done() -> bool:
            return bool((await read(ada, other))["state"] == "completed")

        await until(done, "another job on the pilot that is left")
        assert sum(pilot.process.poll() is None for pilot in pilots) == 1
    assert starts.read_text().splitlines() == ["started"] * 3


@pytest.mark.finding("F-B5")
async def test_the_neighbours_of_a_job_that_kills_pilots_are_not_blamed(server: RunningServer, tenant: str) -> None:
    """Whatever ran beside it comes to another pilot; of what runs there, only what has lost a pilot before is counted."""
    ada = server.person("submitter", tenant=tenant)

    async def die_with(count: int) -> list[str]:
        pilot = await ScriptedPilot.register(server, tenant, host="n1", slots=8)
        async with pilot.channel():
            jobs: list[str] = []
            while len(jobs) < count and (claims := await pilot.claim(most=count - len(jobs), wait=5)):
                jobs += [claim["job"] for claim in claims]

        async def released() -> bool:
            return all([(await read(ada, job))["state"] != "running" for job in jobs])

        await until(released, "the release of what the pilot had")
        return jobs

    first = await submit(ada, *[{}] * 4, command=["true"])
    assert set(await die_with(4)) == set(first)
    survivors = [await ScriptedPilot.register(server, tenant, host="n1", slots=8) for _ in range(3)]
    given = [await pilot.claim(most=8, wait=5) for pilot in survivors]
    assert [len(claims) for claims in given] == [1, 1, 1], "each is apart from the others"
    for pilot, (claim,) in zip(survivors, given, strict=True):
        await pilot.end(claim, host="n1")
    (killer,) = set(first) - {claim["job"] for (claim,) in given}
    neighbours = await submit(ada, *[{}] * 5, command=["true"])
    assert set(await die_with(6)) == {killer, *neighbours}
    others = await submit(ada, *[{}] * 2, command=["true"])
    assert set(await die_with(8)) == {killer, *neighbours, *others}
    assert (await read(ada, killer))["state"] == "faulted"
    for job in (*neighbours, *others):
        assert (await read(ada, job))["state"] == "available", job
