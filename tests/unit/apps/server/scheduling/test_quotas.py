"""Quotas, teams and shares by the HTTP interface, on a real server."""

from __future__ import annotations

from typing import Any

import httpx
from tests.unit.apps.server.asks import problem, read, submit, submit_one
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot


async def test_a_team_has_its_quota_and_who_waits_for_it_is_told(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    ada, bob = (server.person("submitter", tenant=tenant, subject=name) for name in ("ada", "bob"))
    assert (await ada.put("/v1/quotas/team/physics", json={"jobs": 2})).status_code == 403
    body = problem(await operator.put("/v1/quotas/team/physics", json={}), 422)
    assert body["detail"] == "state at least one limit, or the share"
    assert (await operator.put("/v1/quotas/team/physics", json={"jobs": 2})).json() == {
        "kind": "team", "name": "physics", "jobs": 2, "cpus": None, "gpus": None, "share": None,
        "used": {"jobs": 0, "cpus": 0, "gpus": 0},
    }  # fmt: skip
    for owner in ("ada", "bob"):
        assert (await operator.put(f"/v1/quotas/members/{owner}", json={"team": "physics"})).status_code == 200
    pilot = await ScriptedPilot.register(server, tenant)
    await submit(ada, {}, {})
    first, second = await pilot.claim_one(), await pilot.claim_one()
    waiting = await submit_one(bob)
    assert await pilot.claim(wait=0.5) == []
    assert (await read(bob, waiting))["waiting"] == "quota of team physics: 2 of 2 running jobs"
    (listed,) = [job for job in (await bob.get("/v1/jobs")).json()["jobs"] if job["id"] == waiting]
    assert listed["waiting"] == "quota of team physics: 2 of 2 running jobs"
    assert await _used(bob, "physics") == {"jobs": 2, "cpus": 2, "gpus": 0}
    free = await submit_one(server.person("submitter", tenant=tenant, subject="eve"))
    assert (await pilot.claim_one())["job"] == free, "who is in no team is not concerned"
    assert await pilot.end(first) == ["committed"]
    assert (await pilot.claim_one())["job"] == waiting
    assert await pilot.end(second) == ["committed"]
    assert (await operator.delete("/v1/quotas/members/ada")).status_code == 200
    problem(await operator.delete("/v1/quotas/members/ada"), 404)
    assert (await operator.delete("/v1/quotas/team/physics")).status_code == 200
    problem(await operator.delete("/v1/quotas/team/physics"), 404)
    audit = (await server.person("administrator", tenant=tenant).get("/v1/audit")).text
    for action in ("set quota", "remove quota", "set team", "remove from team"):
        assert action in audit


async def test_another_tenant_neither_sees_nor_counts_in_a_quota(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    assert (await operator.put("/v1/quotas/owner/*", json={"jobs": 0, "share": 2})).status_code == 200
    other = f"{tenant}-2"[:64]
    stranger = server.person("submitter", tenant=other, subject="ada")
    assert (await stranger.get("/v1/quotas")).json() == {"quotas": [], "members": [], "half_life": 0, "shares": []}
    pilot = await ScriptedPilot.register(server, other)
    job = await submit_one(stranger)
    assert (await pilot.claim_one())["job"] == job
    assert [quota["name"] for quota in (await operator.get("/v1/quotas")).json()["quotas"]] == ["*"]


async def test_the_fair_share_is_turned_on_and_off(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    problem(await operator.put("/v1/quotas/fair-share", json={"half_life": -1}), 422)
    assert (await operator.put("/v1/quotas/fair-share", json={"half_life": 3600})).json() == {"half_life": 3600}
    assert (await operator.get("/v1/quotas")).json()["half_life"] == 3600
    assert (await operator.put("/v1/quotas/fair-share", json={"half_life": 0})).status_code == 200
    assert (await operator.get("/v1/quotas")).json()["half_life"] == 0


async def test_a_site_is_asked_for_no_more_pilots_than_a_quota_leaves_jobs_for(
    server: RunningServer, tenant: str
) -> None:
    operator = server.person("operator", tenant=tenant)
    assert (await operator.put("/v1/quotas/owner/ada", json={"cpus": 4})).status_code == 200
    await submit(operator, *[{}] * 3, resources={"cpus": 2})
    await server.refresh()
    (group,) = (await operator.get("/v1/sites/hall/demand")).json()["groups"]
    assert group["tasks"] == 2


async def _used(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    quotas = (await client.get("/v1/quotas")).json()["quotas"]
    (quota,) = [known for known in quotas if known["name"] == name]
    used: dict[str, Any] = quota["used"]
    return used
