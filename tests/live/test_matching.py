"""Real pilots with caches at a real server: who reads a file runs where it was made."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests import servers
from tests.live.running_site import RunningSite, until, until_state

pytestmark = [pytest.mark.live, pytest.mark.pair]
PAIRS = 3


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunningSite]:
    running = RunningSite(tmp_path, f"matching-{uuid4().hex[:8]}")
    try:
        await running.start_server()
        yield running
    finally:
        await running.stop()
        async with httpx.AsyncClient(base_url=servers.opensearch()[0], timeout=60) as client:
            response = await client.get(f"/_cat/indices/{running.prefix}-*", params={"format": "json", "h": "index"})
            for problem in response.json():
                (await client.delete(f"/{problem['index']}")).raise_for_status()


async def _submit(client: httpx.AsyncClient, *jobs: dict[str, Any], **spec: Any) -> list[str]:
    answer = await client.post("/v1/jobs", json={"specification": {"name": "m"} | spec, "jobs": list(jobs)})
    assert answer.status_code == 201, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


@pytest.mark.ledger("P3-11")
@pytest.mark.ledger("P3-12")
@pytest.mark.ledger("P3-18")
async def test_readers_run_where_their_files_are_and_merges_where_theirs_meet(site: RunningSite) -> None:
    tenant = f"t-{uuid4().hex[:8]}"
    person = site.person(tenant)
    for host in ("n1", "n2", "n3"):
        site.start_pilot(tenant, host, "--cache", str(site.folder / "cache" / host), slots=2)

    async def asking() -> bool:
        return len((await person.get("/v1/hosts")).json()["hosts"]) == 3

    await until(asking, "three hosts to ask")
    colocate = {"key": "pair-{pair}", "room": 2, "of": 3}
    producers = await _submit(
        person,
        *({"parameters": {"pair": pair}} for pair in range(PAIRS) for _ in range(2)),
        command=["sh", "-c", "sleep 1; head -c 200000 /dev/zero > out.bin"],
        outputs=["out.bin"],
        colocate=colocate,
    )
    made = {job: (await until_state(person, job, "completed"))["last"]["host"] for job in producers}
    merges = []
    for pair in range(PAIRS):
        inputs = [
            {"name": f"in{place}", "source": f"job:{job}/out.bin"}
            for place, job in enumerate(producers[2 * pair : 2 * pair + 2])
        ]
        merges += await _submit(
            person,
            {"parameters": {"pair": pair}, "priority": 1},
            command=["sleep", "0.2"],
            inputs=inputs,
            colocate=colocate,
        )
    ran = [(await until_state(person, job, "completed"))["last"]["host"] for job in merges]
    for pair in range(PAIRS):
        assert made[producers[2 * pair]] == made[producers[2 * pair + 1]] == ran[pair]
