"""Real pilots on a host where every payload dies at once, and on one that stops for a while."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests import servers
from tests.live.running_site import LEASE, RunningSite, read, story, until, until_state
from tests.speed import clock_limit

pytestmark = [pytest.mark.live, pytest.mark.pair]
JOBS = 40


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunningSite]:
    running = RunningSite(tmp_path, f"hosts-{uuid4().hex[:8]}")
    try:
        await running.start_server()
        running.start_reconciler()
        yield running
    finally:
        await running.stop()
        async with httpx.AsyncClient(base_url=servers.opensearch()[0], timeout=60) as client:
            response = await client.get(f"/_cat/indices/{running.prefix}-*", params={"format": "json", "h": "index"})
            for problem in response.json():
                (await client.delete(f"/{problem['index']}")).raise_for_status()


async def _submit(client: httpx.AsyncClient, script: str, count: int) -> list[str]:
    spec = {"name": "hosts", "command": ["sh", "-c", script], "max_attempts": 9}
    answer = await client.post("/v1/jobs", json={"specification": spec, "jobs": [{}] * count})
    assert answer.status_code == 201, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


@pytest.mark.ledger("P3-20")
async def test_a_black_hole_eats_five_jobs_and_is_closed_while_good_hosts_go_on(site: RunningSite) -> None:
    tenant = f"t-{uuid4().hex[:8]}"
    person = site.person(tenant)
    for name in ("good-1", "good-2"):
        site.start_pilot(tenant, name, slots=2)

    async def asking() -> bool:
        return len((await person.get("/v1/hosts")).json()["hosts"]) == 2

    await until(asking, "the good hosts to ask")
    site.start_pilot(tenant, "black-hole", slots=8)
    # The working folder is under the pilot's name: only there, every payload dies as soon as it starts.
    jobs = await _submit(person, 'case "$PWD" in *black-hole*) exit 1;; esac; sleep 0.3', JOBS)
    began = time.monotonic()

    async def closed() -> bool:
        hosts = (await person.get("/v1/hosts")).json()["hosts"]
        return any(host["host"] == "black-hole" and host["status"] == "closed" for host in hosts)

    await until(closed, "the black hole to be closed")
    assert time.monotonic() - began <= clock_limit(60)
    for job in jobs:
        await until_state(person, job, "completed")
    runs = [line["note"] for job in jobs for line in (await story(person, job))["story"] if line["event"] == "claim"]
    eaten = sum("on black-hole" in note for note in runs)
    probes = int((time.monotonic() - began) // 30)
    assert 1 <= eaten <= 5 + probes
    hosts = {(await read(person, job))["last"]["host"] for job in jobs}
    assert hosts <= {"good-1", "good-2"}


async def test_a_host_that_stops_for_less_than_its_lease_is_not_taken_for_dead(site: RunningSite) -> None:
    tenant = f"t-{uuid4().hex[:8]}"
    person = site.person(tenant)
    pilot = site.start_pilot(tenant, "slow")
    (job,) = await _submit(person, f"sleep {2 * LEASE}", 1)
    await until_state(person, job, "running")
    pilot.send(signal.SIGSTOP)
    time.sleep(0.6 * LEASE)  # noqa: ASYNC251 - the pilot is stopped, and so are we
    pilot.send(signal.SIGCONT)
    done = await until_state(person, job, "completed")
    assert done["attempt"] == 1
    assert [line["event"] for line in (await story(person, job))["story"]][:2] == ["create", "claim"]
    hosts = (await person.get("/v1/hosts")).json()["hosts"]
    assert [host["status"] for host in hosts if host["host"] == "slow"] == ["open"]
