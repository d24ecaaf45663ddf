"""Real processes die, stop and come back on the real store; their jobs go on, and every run is in the story.

The full proof is `just chaos`; these are its smallest parts, each on its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests import servers
from tests.live.running_site import LEASE, PATIENCE, RunningSite, read, story, submit, until, until_state
from tests.speed import clock_limit

pytestmark = [pytest.mark.live, pytest.mark.pair]


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningSite]:
    """Two servers and a reconciler."""
    running = RunningSite(tmp_path_factory.mktemp("site"), f"recovery-{uuid4().hex[:8]}")
    try:
        await running.start_server()
        await running.start_server()
        running.start_reconciler()
        yield running
    finally:
        await running.stop()
        async with httpx.AsyncClient(base_url=servers.opensearch()[0], timeout=60) as client:
            response = await client.get(f"/_cat/indices/{running.prefix}-*", params={"format": "json", "h": "index"})
            for problem in response.json():
                (await client.delete(f"/{problem['index']}")).raise_for_status()


@pytest.fixture
def tenant() -> str:
    return f"t-{uuid4().hex[:8]}"


def events(fields: dict[str, Any]) -> list[str]:
    return [line["event"] for line in fields["story"]]


def moment(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


async def published(client: httpx.AsyncClient, job: str) -> str:
    """The output that a job published, checked against its manifest's digest."""
    answer = await client.get(f"/v1/jobs/{job}/outputs")
    assert answer.status_code == 200, answer.text
    manifest = answer.json()["manifest"]
    return _read_output(Path(manifest["path"]), manifest["sha256"])


def _read_output(manifest: Path, digest: str) -> str:
    assert hashlib.sha256(manifest.read_bytes()).hexdigest() == digest
    return manifest.with_name("out.txt").read_text().strip()


@pytest.mark.ledger("P4-05", "P4-11", "P4-14")
async def test_a_silent_pilots_job_is_run_again_and_its_own_late_end_does_not_count(
    site: RunningSite, tenant: str
) -> None:
    """P4 section 3.3: the orphan scan. The pilot is stopped past its lease, and comes back when another has its job."""
    ada = site.person(tenant)
    (job,) = await submit(ada, "sleep 3; echo $FORESTAY_FENCE > out.txt", expected_runtime=1)
    silent = site.start_pilot(tenant, f"{tenant}-silent")
    await until_state(ada, job, "running")
    await asyncio.sleep(1)  # the payload has begun
    silent.send(signal.SIGSTOP)
    stopped = time.time()
    await until_state(ada, job, "available", patience=PATIENCE + 30)
    released = (await story(ada, job))["story"][-1]
    assert (released["event"], released["by"]) == ("release", "orphan watch")
    assert moment(released) - stopped > PATIENCE - LEASE, "not before its lease and the ten seconds are over"
    assert (await read(ada, job))["overlap_possible"] is True
    site.start_pilot(tenant, f"{tenant}-second")
    await until_state(ada, job, "running")
    silent.send(signal.SIGCONT)
    await until_state(ada, job, "completed")

    async def late_completion() -> bool:
        return any(entry["kind"] == "late-completion" for entry in (await story(ada, job))["evidence"])

    await until(late_completion, "the late end to be kept")
    assert events(await story(ada, job)) == ["create", "claim", "release", "claim", "complete"]
    assert (await read(ada, job))["winner"]["attempt"] == 2
    assert await published(ada, job) == "0.2"


@pytest.mark.ledger("P4-14")
async def test_heartbeats_renew_the_lease_for_as_long_as_the_payload_runs(site: RunningSite, tenant: str) -> None:
    """P4 section 5.1: a job that runs for many leases is never taken from a pilot that is heard."""
    seconds = PATIENCE + 3
    ada = site.person(tenant)
    (job,) = await submit(ada, f"sleep {seconds}; echo done > out.txt")
    site.start_pilot(tenant, f"{tenant}-steady")
    await until_state(ada, job, "completed", patience=seconds + 45)
    assert events(await story(ada, job)) == ["create", "claim", "complete"]


@pytest.mark.ledger("P4-12")
async def test_the_job_of_a_pilot_that_dies_runs_again_in_seconds(site: RunningSite, tenant: str) -> None:
    """P4 section 4.2 recovers in five minutes on average."""
    ada = site.person(tenant)
    (job,) = await submit(ada, "sleep 5; echo $FORESTAY_FENCE > out.txt")
    dying = site.start_pilot(tenant, f"{tenant}-dying")
    await until_state(ada, job, "running")
    site.start_pilot(tenant, f"{tenant}-heir")
    await asyncio.sleep(1)  # the heir waits for work
    dying.send(signal.SIGKILL)
    died = time.time()
    await until_state(ada, job, "completed")
    returned_story = await story(ada, job)
    assert events(returned_story) == ["create", "claim", "release", "claim", "complete"]
    claimed_again = moment(returned_story["story"][3])
    # A server that was itself held up doubts for ten seconds what it sees.
    assert claimed_again - died < clock_limit(5.0) + 10
    assert await published(ada, job) == "0.2"


@pytest.mark.ledger("P4-08")
async def test_one_of_two_servers_dies_and_the_work_goes_on(site: RunningSite, tenant: str) -> None:
    """P4 section 2.2: the job management service has no single point of failure."""
    doomed = await site.start_server()
    place = len(site.urls) - 1
    first, second = site.person(tenant, place), site.person(tenant, 0)
    jobs = await submit(first, "sleep 0.2; echo $FORESTAY_FENCE > out.txt", count=20)
    for number in range(2):
        site.start_pilot(tenant, f"{tenant}-{number}", slots=2)

    async def some_done() -> bool:
        answer = await second.get("/v1/jobs/counts?by=state")
        return bool(answer.json()["counts"].get("completed", 0) >= 5)

    await until(some_done, "the first jobs")
    doomed.send(signal.SIGKILL)
    site.urls.pop(place)
    jobs += await submit(second, "echo $FORESTAY_FENCE > out.txt", count=5)
    for job in jobs:
        await until_state(second, job, "completed")
    for job in jobs:
        returned_story = await story(second, job)
        assert events(returned_story).count("complete") == 1
        claims = [line for line in returned_story["story"] if line["event"] == "claim"]
        releases = [line for line in returned_story["story"] if line["event"] == "release"]
        assert len(claims) == 1 + len(releases), "every attempt but the last has its end in the story"
        assert await published(second, job) == f"0.{claims[-1]['attempt']}"
