"""Sites over HTTP: launches are written down once and only go forward, demand is counted, a site has one agent."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.running import RunningServer, until

SIZE = {"name": "small", "slots": 1, "cpus": 1, "memory": 1 << 30, "disk": 1 << 30, "gpus": 0, "wall": 3600}


def said(agent: str = "a-1", **changes: Any) -> dict[str, Any]:
    known = {"agent": agent, "host": "login1", "batch": "slurm", "every": 10, "min_pilots": 0, "max_pilots": 4}
    return known | {"min_idle": 0, "sizes": [SIZE]} | changes


async def plan(agent: httpx.AsyncClient, *launches: str, site: str = "hall") -> list[dict[str, Any]]:
    body = {"launches": [{"launch": launch, "size": "small"} for launch in launches]}
    answer = await agent.post(f"/v1/sites/{site}/launches", json=body)
    assert answer.status_code == 201, answer.text
    planned: list[dict[str, Any]] = answer.json()["launches"]
    return planned


async def tell(agent: httpx.AsyncClient, launch: str, state: str, **more: Any) -> str:
    body = {"reports": [{"launch": launch, "state": state, **more}]}
    answer = await agent.post("/v1/sites/hall/launches/reports", json=body)
    assert answer.status_code == 200, answer.text
    (result,) = answer.json()["results"]
    return f"{result['result']}: {result['detail']}"


async def open_launches(agent: httpx.AsyncClient, site: str = "hall") -> dict[str, dict[str, Any]]:
    launches = (await agent.get(f"/v1/sites/{site}/launches")).json()["launches"]
    return {launch["launch"]: launch for launch in launches}


async def test_a_launch_is_planned_once_and_goes_forward_only(server: RunningServer, tenant: str) -> None:
    agent = server.person("site", tenant=tenant)
    (first,) = await plan(agent, "l-1")
    assert (first["state"], first["tries"], first["name"]) == ("planned", 1, "forestay-l-1")
    assert await tell(agent, "l-1", "submitted", batch_job="4711") == "noted: submitted"
    (again,) = await plan(agent, "l-1")
    assert (again["state"], again["batch_job"]) == ("submitted", "4711"), "a repeated plan changes nothing"
    assert await tell(agent, "l-1", "running") == "noted: running"
    assert await tell(agent, "l-1", "submitted", batch_job="4712") == "noted: running"
    end = {"word": "COMPLETED", "exit_code": 0, "nodes": ["n1"]}
    assert await tell(agent, "l-1", "ended", end=end) == "noted: ended"
    assert await tell(agent, "l-1", "running") == "noted: ended"
    assert await tell(agent, "l-2", "running") == "unknown: there is no such launch"
    await server.refresh()
    assert await open_launches(agent) == {}
    (ended,) = (await agent.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
    assert (ended["batch_job"], ended["end"]["word"], ended["end"]["nodes"]) == ("4711", "COMPLETED", ["n1"])


async def test_a_second_try_is_written_down_before_it_is_made(server: RunningServer, tenant: str) -> None:
    agent = server.person("site", tenant=tenant)
    await plan(agent, "l-1")
    assert await tell(agent, "l-1", "planned", tries=2) == "noted: planned"
    assert await tell(agent, "l-1", "planned", tries=2) == "refused: 2 tries are recorded"
    await tell(agent, "l-1", "submitted", batch_job="1")
    assert await tell(agent, "l-1", "planned", tries=3) == "refused: it is submitted already"


async def test_two_that_make_the_same_try_at_once_are_told_apart(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    client, two = server.person("site", tenant=tenant), other.person("site", tenant=tenant)
    await plan(client, "l-1")
    for tries in range(2, 12):
        names = [await tell(client, "l-1", "planned", tries=tries), await tell(two, "l-1", "planned", tries=tries)]
        assert sorted(names) == ["noted: planned", f"refused: {tries} tries are recorded"]


async def test_demand_is_queued_jobs_by_need_and_pilots_by_state(server: RunningServer, tenant: str) -> None:
    agent = server.person("site", tenant=tenant)
    user = server.person("operator", tenant=tenant)
    await submit(user, *[{"priority": -7}] * 3, resources={"cpus": 1, "wall": 600})
    await submit(user, {"priority": 5}, resources={"cpus": 4})
    (held,) = await submit(user, {}, resources={"cpus": 4})
    assert (await user.post(f"/v1/jobs/{held}/hold", json={"reason": "later"})).status_code == 200
    await plan(agent, "l-1", "l-2")

    async def counted() -> dict[str, Any] | None:
        await server.refresh()
        demand: dict[str, Any] = (await agent.get("/v1/sites/hall/demand")).json()
        groups = [(group["tasks"], group["need"]["cpus"], group["need"].get("wall")) for group in demand["groups"]]
        return demand if groups == [(1, 4, None), (3, 1, 600)] else None

    demand = await until(counted, "the queue is counted, the urgent first and the held one left out")
    assert demand["pilots"] == {"inactive": 2, "idle": 0, "busy": 0}
    assert demand["sizes"] == {"small": {"inactive": 2, "idle": 0, "busy": 0}}
    assert {launch["launch"] for launch in demand["launches"]} == {"l-1", "l-2"}
    elsewhere = (await agent.get("/v1/sites/cave/demand")).json()
    assert elsewhere["launches"] == []


async def test_a_pilot_that_registers_makes_its_launch_run_and_counts_as_idle_then_busy(
    server: RunningServer, tenant: str
) -> None:
    agent = server.person("site", tenant=tenant)
    await plan(agent, "l-1")
    await tell(agent, "l-1", "submitted", batch_job="7")
    secret = (await agent.post("/v1/enrolments", json={"site": "hall", "launch": "l-1"})).json()["secret"]
    body = {
        "host": "n1",
        "site": "hall",
        "slots": 1,
        "resources": {"cpus": 1, "memory": 1 << 30, "disk": 1 << 30, "gpus": 0},
        "launch": "l-1",
        "nonce": uuid4().hex,
    }
    registered = await server.client(secret).post("/v1/pilots", json=body)
    assert registered.status_code == 201, registered.text
    name = registered.json()["pilot"]
    await server.refresh()
    assert (await open_launches(agent))["l-1"]["pilot"] == name
    assert (await agent.get("/v1/sites/hall/demand")).json()["pilots"] == {"inactive": 0, "idle": 1, "busy": 0}
    pilot = server.client(registered.json()["token"])
    await submit(server.person("submitter", tenant=tenant), {}, resources={"cpus": 1})
    asked = {"resources": body["resources"], "max": 1, "wait": 5}
    claims = (await pilot.post(f"/v1/pilots/{name}/claims", json=asked)).json()["claims"]
    assert len(claims) == 1

    async def busy() -> bool:
        await server.refresh()
        counts: dict[str, int] = (await agent.get("/v1/sites/hall/demand")).json()["pilots"]
        return counts == {"inactive": 0, "idle": 0, "busy": 1}

    await until(busy, "the pilot counts as busy")


async def test_a_site_has_one_agent_and_people_see_how_it_stands(server: RunningServer, tenant: str) -> None:
    agent = server.person("site", tenant=tenant)
    viewer = server.person("viewer", tenant=tenant)
    assert (await agent.put("/v1/sites/hall", json=said())).status_code == 200
    assert (await agent.put("/v1/sites/hall", json=said(trouble="slurmctld is\x1b[1m down"))).status_code == 200
    refused = problem(await agent.put("/v1/sites/hall", json=said("a-2")), 409)
    assert "another agent manages site hall, on login1" in refused["detail"]
    await server.refresh()
    (shown,) = (await viewer.get("/v1/sites")).json()["sites"]
    assert (shown["site"], shown["overdue"], shown["said"]["trouble"]) == ("hall", False, "slurmctld is [1m down")
    whole = (await viewer.get("/v1/sites/hall")).json()
    assert whole["demand"]["pilots"] == {"inactive": 0, "idle": 0, "busy": 0}
    problem(await viewer.get("/v1/sites/cave"), 404)
    problem(await viewer.put("/v1/sites/hall", json=said()), 403)
    problem(await viewer.get("/v1/sites/hall/demand"), 403)
    foreign = server.person("viewer", tenant=tenant + "x")
    assert (await foreign.get("/v1/sites")).json()["sites"] == []


async def test_several_sites_are_each_asked_for_their_share(server: RunningServer, tenant: str) -> None:
    agent = server.person("site", tenant=tenant)
    viewer = server.person("viewer", tenant=tenant)
    large = SIZE | {"name": "large", "cpus": 8, "slots": 8}
    await agent.put("/v1/sites/hall", json=said())
    await agent.put("/v1/sites/cave", json=said("a-2", max_pilots=12))
    await agent.put("/v1/sites/roof", json=said("a-3", sizes=[large], trouble="no answer"))
    user = server.person("submitter", tenant=tenant)
    await submit(user, *[{}] * 8, resources={"cpus": 1})
    await submit(user, {}, {}, resources={"cpus": 8})
    await submit(user, {}, resources={"cpus": 99})

    async def asked(site: str) -> dict[int, int]:
        server.services.demand._queues.clear()
        server.services.demand._counted.clear()
        await server.refresh()
        groups = (await agent.get(f"/v1/sites/{site}/demand")).json()["groups"]
        return {group["need"]["cpus"]: group["tasks"] for group in groups}

    assert await asked("hall") == {1: 2, 99: 1}, "a quarter of the room; what nobody can run is shown to all"
    assert await asked("cave") == {1: 6, 99: 1}
    assert await asked("roof") == {1: 5, 8: 2, 99: 1}, "asked for something it finds out whether it still is in trouble"
    await plan(agent, *[f"l-{number}" for number in range(6)], site="cave")
    assert await asked("hall") == {1: 1, 99: 1}, "six are covered; the others have room as four to six"
    assert (await viewer.get("/v1/sites/hall")).json()["demand"]["groups"][-1]["tasks"] == 1
