"""A pilot that dies under a task costs the client nothing, and what it had made is never seen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.system.tes.conftest import BASE, Site, file_url
from tests.unit.apps.server.running import until


async def test_the_outputs_of_a_killed_attempt_are_never_seen(site: Site, tmp_path: Path) -> None:
    tenant = "killed"
    client = site.running.client(site.server, "submitter", tenant=tenant)
    first = site.running.pilot(tenant, site.server)
    begun, gate, out = tmp_path / "begun", tmp_path / "gate", tmp_path / "out"
    words = f"echo $FORESTAY_ATTEMPT > /o/a; touch {begun}-$FORESTAY_ATTEMPT; until test -e {gate}; do sleep 0.1; done; cp /o/a /o/b"
    body: dict[str, Any] = {
        "executors": [{"image": "alpine", "command": ["/bin/sh", "-c", words]}],
        "outputs": [{"path": f"/o/{name}", "url": file_url(out / name)} for name in "ab"],
    }
    name = (await client.post(f"{BASE}/tasks", json=body)).json()["id"]
    states: set[str] = set()

    async def state() -> str:
        now: str = (await client.get(f"{BASE}/tasks/{name}")).json()["state"]
        states.add(now)
        return now

    async def has_begun(attempt: int) -> bool:
        await state()
        mark = tmp_path / f"begun-{attempt}"
        return mark.exists()

    await until(lambda: has_begun(1), "the first attempt")
    first.kill()
    site.running.pilot(tenant, site.server)
    await until(lambda: has_begun(2), "the second attempt")
    assert not out.exists()
    await asyncio.to_thread(gate.touch)

    async def over() -> bool:
        return await state() == "COMPLETE"

    await until(over, "the end")
    assert states <= {"QUEUED", "INITIALIZING", "RUNNING", "COMPLETE"}
    assert [(out / char).read_text() for char in "ab"] == ["2\n", "2\n"]
    (log,) = (await client.get(f"{BASE}/tasks/{name}", params={"view": "FULL"})).json()["logs"]
    assert log["metadata"]["attempt"] == "2"
    assert {output["path"] for output in log["outputs"]} == {"/o/a", "/o/b"}
