"""Right-sizing over HTTP: the size of inputs is kept with what was measured, and each tenant has its own figures."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, submit
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.apps.cli.flows.sizes import size_lines

GB = 1 << 30


async def measured(server: RunningServer, tenant: str, count: int, **facts: Any) -> list[str]:
    person = server.person("submitter", tenant=tenant)
    jobs = await submit(person, *[{}] * count, name="align", resources={"memory": 30 * GB, "wall": 7200})
    pilot = await ScriptedPilot.register(server, tenant)
    ended = 0
    while ended < count:
        claims = await pilot.claim(most=32)
        ended += len(claims)
        assert await pilot.end(*claims, wall=600.0, peak_memory=int(2.8 * GB), **facts) == ["committed"] * len(claims)
    return jobs


async def test_would_have_asked_less(local: RunningServer, tenant: str) -> None:
    staged = [{"name": "a", "from": "element", "bytes": 3 * GB}, {"name": "b", "from": "cache", "bytes": 0}]
    jobs = await measured(local, tenant, 110, staging=staged)
    person = local.person("viewer", tenant=tenant)
    assert (await read(person, jobs[0]))["last"]["input_bytes"] == 3 * GB
    await local.refresh()
    report = (await person.get("/v1/sizes", params={"task": "align"})).json()
    (task,) = report["tasks"]
    assert (task["jobs"], task["asked_memory"], task["memory"] >> 20, task["wall"]) == (110, 30 * GB, 3154, 780)
    assert (task["backtest"]["jobs"], task["backtest"]["failed"]) == (55, 0)
    lines = list(size_lines(report, 100, detailed=True))
    assert max(map(len, lines)) <= 100
    assert "align: would have asked 3.1G instead of 30G" in lines
    assert "0 of the newest 55 jobs would have run out of memory" in " ".join(lines)
    assert lines[1].split() == ["-", "align", "110", "30G", "3.1G", "2", "h", "13", "min", "-99%", "0.0%"]

    stranger = local.person("viewer", tenant=f"{tenant}-other")
    assert (await stranger.get("/v1/sizes")).json() == {"tasks": [], "read": 0, "whole": True}
    problem(await local.person("enrol", tenant=tenant).get("/v1/sizes"), 403)


@pytest.mark.parametrize(
    "staging",
    [[{"name": "a", "from": "cache"}], [{"name": "a", "bytes": 1}] * 50, []],
    ids=["a size is not known", "there may be more", "there are none"],
)
async def test_inputs_whose_size_is_not_known(local: RunningServer, tenant: str, staging: list[dict[str, Any]]) -> None:
    (job,) = await measured(local, tenant, 1, staging=staging)
    assert "input_bytes" not in (await read(local.person("viewer", tenant=tenant), job))["last"]
