"""Pilots that are ordered to drain, and what people see of pilots."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, submit_one
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot


async def drain(server: RunningServer, tenant: str, **body: Any) -> list[str]:
    response = await server.person("operator", tenant=tenant).post("/v1/pilots/drain", json={"reason": "a disk"} | body)
    assert response.status_code == 200, response.text
    names: list[str] = response.json()["pilots"]
    return names


async def shown(server: RunningServer, tenant: str) -> dict[str, dict[str, Any]]:
    await server.refresh()
    pilots = (await server.person("viewer", tenant=tenant).get("/v1/pilots")).json()["pilots"]
    return {pilot["id"]: pilot for pilot in pilots}


@pytest.mark.ledger("P3-03")
async def test_a_pilot_is_idle_or_busy(server: RunningServer, tenant: str) -> None:
    """Section IV-A: idle is one that runs and has no job, busy one that has."""
    pilot = await ScriptedPilot.register(server, tenant)
    assert (await shown(server, tenant))[pilot.name]["activity"] == "idle"
    await submit_one(server.person("submitter", tenant=tenant))
    claim = await pilot.claim_one()
    busy = (await shown(server, tenant))[pilot.name]
    assert (busy["activity"], busy["claims"]) == ("busy", 1)
    await pilot.end(claim)
    assert (await shown(server, tenant))[pilot.name]["activity"] == "idle"
    await pilot.bye()
    gone = (await shown(server, tenant))[pilot.name]
    assert (gone["state"], gone["activity"]) == ("gone", None)


@pytest.mark.ledger("P3-03")
async def test_one_that_waits_in_its_batch_system_is_inactive(local: RunningServer, tenant: str) -> None:
    agent = local.person("site", tenant=tenant, subject="agent")
    hello = {
        "agent": "a-1", "host": "login", "batch": "slurm", "every": 10, "min_pilots": 0, "max_pilots": 9, "min_idle": 0, "sizes": [],
    }  # fmt: skip
    answer = await agent.put("/v1/sites/cluster", json=hello)
    assert answer.status_code < 300, answer.text
    planned = await agent.post("/v1/sites/cluster/launches", json={"launches": [{"launch": "l-1", "size": "s"}]})
    assert planned.status_code < 300, planned.text
    await local.refresh()
    viewer = local.person("viewer", tenant=tenant)
    (waiting,) = (await viewer.get("/v1/pilots")).json()["inactive"]
    assert (waiting["launch"], waiting["site"], waiting["state"]) == ("l-1", "cluster", "planned")
    enrolment = {"site": "cluster", "launch": "l-1"}
    secret = (await agent.post("/v1/enrolments", json=enrolment)).json()["secret"]
    body = {"host": "node1", "launch": "l-1", "nonce": "n" * 32}
    assert (await local.client(secret).post("/v1/pilots", json=body)).status_code == 201
    await local.refresh()
    returned_body = (await viewer.get("/v1/pilots")).json()
    assert (returned_body["inactive"], [pilot["activity"] for pilot in returned_body["pilots"]]) == ([], ["idle"])


async def test_a_draining_pilot_is_told_at_once_and_given_nothing(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel() as orders:
        assert await drain(server, tenant, pilots=[pilot.name]) == [pilot.name]
        await orders.wait_for("drain")
        assert (await pilot.heartbeat())["drain"] is True
        await submit_one(server.person("submitter", tenant=tenant))
        assert await pilot.claim(wait=1) == []
        assert (await shown(server, tenant))[pilot.name]["drain"] == "ada: a disk"


async def test_the_order_comes_through_another_server(server: RunningServer, other: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel(other) as orders:
        await drain(server, tenant, pilots=[pilot.name])
        await orders.wait_for("drain")


async def test_one_that_had_no_channel_hears_it_when_it_opens_one(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    await drain(server, tenant, pilots=[pilot.name])
    async with pilot.channel(other) as orders:
        await orders.wait_for("drain")


async def test_by_site_and_by_host(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant, host="n1", site="a")
    two = await ScriptedPilot.register(server, tenant, host="n2", site="a")
    three = await ScriptedPilot.register(server, tenant, host="n1", site="b")
    await server.refresh()
    assert set(await drain(server, tenant, site="a", host="n1")) == {pilot.name}
    assert set(await drain(server, tenant, site="a")) == {pilot.name, two.name}
    assert set(await drain(server, tenant, host="n1")) == {pilot.name, three.name}
    assert await drain(server, tenant, site="nowhere") == []


async def test_what_is_refused(local: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(local, tenant)
    operator = local.person("operator", tenant=tenant)
    problem(await operator.post("/v1/pilots/drain", json={"reason": "r"}), 422)
    problem(await operator.post("/v1/pilots/drain", json={"pilots": [pilot.name]}), 422)
    problem(await operator.post("/v1/pilots/drain", json={"pilots": ["p-none"], "reason": "r"}), 404)
    foreign = local.person("operator", tenant="another")
    problem(await foreign.post("/v1/pilots/drain", json={"pilots": [pilot.name], "reason": "r"}), 404)
    await pilot.bye()
    problem(await operator.post("/v1/pilots/drain", json={"pilots": [pilot.name], "reason": "r"}), 404)
