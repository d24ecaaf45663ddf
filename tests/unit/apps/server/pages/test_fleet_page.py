"""What the fleet's page shows: sites over time, pilots, hosts, caches; and that it hears of changes."""

from __future__ import annotations

from typing import Any

from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

HELLO = {
    "agent": "a1", "host": "head", "batch": "slurm", "every": 5, "min_pilots": 0, "max_pilots": 9, "min_idle": 0,
    "sizes": [], "trouble": "the queue is full",
}  # fmt: skip


async def _fleet(server: RunningServer, tenant: str, what: str = "", **params: Any) -> dict[str, Any]:
    await server.refresh()
    server.services.fleet.changed(tenant)
    answer = await server.person("viewer", tenant=tenant).get(f"/v1/fleet{what}", params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_sites_and_their_pilots_now_and_over_time(server: RunningServer, tenant: str) -> None:
    assert (await _fleet(server, tenant))["sites"] == []
    agent = server.person("site", tenant=tenant, subject="agent")
    assert (await agent.put("/v1/sites/alpha", json=HELLO)).status_code == 200
    planned = {"launches": [{"launch": "l1", "size": "small"}]}
    assert (await agent.post("/v1/sites/alpha/launches", json=planned)).status_code == 201
    await submit(server.person("submitter", tenant=tenant), {}, {})
    first = await ScriptedPilot.register(server, tenant, host="n1", site="alpha", slots=4)
    await first.claim(most=2)
    gone = await ScriptedPilot.register(server, tenant, host="n2", site="beta", slots=2)
    await gone.bye()
    fleet = await _fleet(server, tenant, span="hour")
    alpha, *others = fleet["sites"]
    assert (alpha["site"], alpha["agent"], alpha["batch"], alpha["max_pilots"]) == ("alpha", True, "slurm", 9)
    assert (alpha["coming"], alpha["busy"], alpha["idle"], alpha["running"]) == (1, 1, 0, 2)
    assert (alpha["slots"], alpha["cpus"], alpha["trouble"]) == (4, 64, "the queue is full")
    assert len(fleet["starts"]) == len(alpha["pilots_over"]) == 30
    assert (alpha["pilots_over"][-1], alpha["slots_over"][-1], sum(alpha["pilots_over"][:-2])) == (1, 4, 0)
    assert all(entry["pilots_over"][-1] == 0 for entry in others)
    (shown,) = (await _fleet(server, tenant, "/pilots"))["pilots"]
    assert (shown["id"], shown["host"], shown["running"], shown["drain"]) == (first.name, "n1", 2, "")
    (left,) = (await _fleet(server, tenant, "/pilots", state="gone"))["pilots"]
    assert left["id"] == gone.name
    assert (await _fleet(server, tenant, "/pilots", site="beta"))["total"] == 0
    assert (await _fleet(server, f"{tenant}-other", "/pilots", state="gone"))["total"] == 0


async def test_hosts_that_get_no_jobs_come_first_with_why(server: RunningServer, tenant: str) -> None:
    await submit(server.person("submitter", tenant=tenant), {}, {}, max_attempts=1, when_exhausted="hold")
    for host in ("a", "b", "c"):
        pilot = await ScriptedPilot.register(server, tenant, host=host)
        if host != "c":
            fate: dict[str, Any] = {"outcome": "failure", "exit_code": 1, "wall": 99.0} if host == "b" else {}
            await pilot.end(await pilot.claim_one(), host=host, **fate)
    olga = server.person("operator", tenant=tenant, subject="olga")
    assert (await olga.post("/v1/hosts/c/close", json={"reason": "its disk"})).status_code == 200

    async def closed() -> dict[str, Any] | None:
        fleet = await _fleet(server, tenant, "/hosts")
        return fleet if fleet["hosts"][0]["status"] == "closed" else None

    value = await until(closed, "the closed host")
    assert value["total"] == 3
    first, *others = value["hosts"]
    assert (first["host"], first["by"], first["reason"]) == ("c", "olga", "its disk")
    assert "closed by olga" in first["words"]
    assert {entry["host"]: (entry["ended"], entry["faulted"], entry["pilots"], entry["slots"]) for entry in others} == {
        "a": (1, 0, 1, 4),
        "b": (0, 1, 1, 4),
    }
    assert len((await _fleet(server, tenant, "/hosts", limit=1))["hosts"]) == 1
    overview = await _fleet(server, tenant)
    assert (overview["hosts_open"], overview["hosts_closed"]) == (2, 1)


async def test_how_inputs_came(server: RunningServer, tenant: str) -> None:
    await submit(server.person("submitter", tenant=tenant), {}, {})
    pilot = await ScriptedPilot.register(server, tenant, host="n1", site="alpha")
    first, second = await pilot.claim(most=2, cache={"version": 1, "added": [["lfn:a", 5], ["lfn:b", 6]]})
    staging = [{"name": "x", "from": name} for name in ("cache", "cache", "peer", "elsewhere")]
    await pilot.end(first, staging=staging)
    await pilot.end(first, staging=staging)  # the answer was lost, and it says so again
    await pilot.end(second, staging=[{"name": "y", "from": "element"}])
    fleet = await _fleet(server, tenant, "/caches")
    came = {"cache": 2, "neighbour": 0, "peer": 1, "element": 1}
    assert fleet["inputs"] == came
    (value,) = fleet["pilots"]
    assert value == {"pilot": pilot.name, "host": "n1", "site": "alpha", "files": 2, "inputs": came}
    assert sum(step["inputs"]["cache"] for step in fleet["steps"]) == 2
    assert (await _fleet(server, f"{tenant}-other", "/caches"))["pilots"] == []


async def test_what_changes_is_heard_of(server: RunningServer, tenant: str) -> None:
    viewer = server.person("viewer", tenant=tenant)
    async with read_events(viewer, "/v1/fleet/changes") as reader:
        await reader.wait_for("fleet")
        await ScriptedPilot.register(server, tenant)
        await server.refresh()
        await reader.wait_for("fleet")


async def test_what_cannot_be_asked(server: RunningServer, tenant: str) -> None:
    viewer = server.person("viewer", tenant=tenant)
    for what in ("", "/pilots", "/hosts", "/caches"):
        for params in ({"limit": 201}, {"span": "x"}, {"state": "x"}):
            answer = await viewer.get(f"/v1/fleet{what}", params=params)
            assert answer.status_code in (200, 422)
    problem(await viewer.get("/v1/fleet/hosts", params={"limit": 201}), 422)
    problem(await viewer.get("/v1/fleet/pilots", params={"state": "lost"}), 422)
