"""The global stop over HTTP, and what is written into the audit log when people act on what is not theirs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, steer, submit_one
from tests.unit.apps.server.rules.test_rules import MEMORY, added
from tests.unit.apps.server.running import RunningServer

from forestay.domain.exceptions.safeguards.safeguards import ActionGranted, ActionRefused, ActionRequest, Safeguard
from forestay.domain.exceptions.safeguards.storm import FailureSignature
from forestay.formats.rules.audit_json import check_public


async def log(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["entries"]
    return entries


def request(tenant: str, number: int) -> ActionRequest:
    sign = FailureSignature("node", "s1", f"h{number}")
    return ActionRequest(tenant, "ada", f"j{number}", 1, sign, "resubmit", "job", rule="r1", core_seconds=60)


async def test_a_stop_holds_on_every_server_until_someone_lets_go(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    operator = server.person("operator", tenant=tenant)
    elsewhere = other.person("viewer", tenant=tenant)
    safeguards = other.app.state.context.services.components.safeguards
    assert isinstance((await safeguards.permit([request(tenant, 1)]))[0], ActionGranted)
    stopped = await operator.post("/v1/safeguards/stop", json={"reason": "the disks are full"})
    assert stopped.status_code == 200
    (stop,) = (await elsewhere.get("/v1/safeguards")).json()["stops"]
    assert (stop["everywhere"], stop["why"]) == (False, "the disks are full")
    (answer,) = await safeguards.permit([request(tenant, 2)])
    assert isinstance(answer, ActionRefused)
    assert answer.safeguard is Safeguard.STOP
    assert "the disks are full" in answer.words
    assert (await operator.post("/v1/safeguards/go", json={"reason": "recovered"})).json() == {"stops": []}
    assert isinstance((await safeguards.permit([request(tenant, 3)]))[0], ActionGranted)
    problem(await operator.post("/v1/safeguards/go", json={"reason": "again"}), 409)
    assert [record["what"] for record in await log(operator)] == ["safeguard.stop", "safeguard.go", "safeguard.go"]


async def test_who_may_stop(server: RunningServer, tenant: str) -> None:
    for role in ("viewer", "submitter", "approver"):
        person = server.person(role, tenant=tenant)
        problem(await person.post("/v1/safeguards/stop", json={"reason": "x"}), 403)
        problem(await person.get("/v1/audit"), 403)
    operator = server.person("operator", tenant=tenant)
    problem(await operator.post("/v1/safeguards/stop", json={"reason": ""}), 422)
    for role in ("operator", "administrator"):
        foreign = server.person(role, tenant=tenant)
        refused = await foreign.post("/v1/safeguards/stop", json={"reason": "x", "everywhere": True})
        assert "administrator of tenant default" in problem(refused, 403)["detail"]
    by_default_policy = server.person("operator", tenant="default")
    problem(await by_default_policy.post("/v1/safeguards/stop", json={"reason": "x", "everywhere": True}), 403)


async def test_the_default_policy_stops_all_tenants(local: RunningServer, tenant: str) -> None:
    admin = local.person("administrator", tenant="default")
    viewer = local.person("viewer", tenant=tenant)
    try:
        assert (await admin.post("/v1/safeguards/stop", json={"reason": "x", "everywhere": True})).status_code == 200
        (stop,) = (await viewer.get("/v1/safeguards")).json()["stops"]
        assert stop["everywhere"]
    finally:
        await admin.post("/v1/safeguards/go", json={"reason": "x", "everywhere": True})
    assert (await viewer.get("/v1/safeguards")).json()["stops"] == []


async def test_a_person_decides_on_the_group_of_a_storm(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    safeguards = server.app.state.context.services.components.safeguards
    await safeguards.storms.notice(tenant, [request(tenant, n).sign for n in range(100)])
    first, second = await safeguards.permit([request(tenant, 1), request(tenant, 2)])
    assert isinstance(first, ActionGranted)
    assert isinstance(second, ActionRefused)
    returned_body = (await operator.get("/v1/safeguards")).json()
    (group,) = returned_body["groups"]
    assert (group["trait"], group["value"], group["failures"], group["held"]) == ("cause", "node", 100, False)
    assert group["tried"][0]["pending"] == ["j1/1"]
    body = {"group": group["id"], "rule": "r1", "do": "all", "reason": "looked at it"}
    decided = await operator.post("/v1/safeguards/groups", json=body)
    assert decided.json()["tried"][0]["state"] == "all"
    assert isinstance((await safeguards.permit([request(tenant, 2)]))[0], ActionGranted)
    problem(await operator.post("/v1/safeguards/groups", json=body | {"rule": "r2"}), 404)


@pytest.mark.parametrize("verb", ["cancel", "hold", "retry", "force-fail"])
async def test_acts_on_anothers_job_are_written_down_and_ones_own_are_not(
    server: RunningServer, tenant: str, verb: str
) -> None:
    body = {"expected_attempt": 0, "reason": "wrong input"} if verb == "force-fail" else {"reason": "wrong input"}
    ada = server.person("submitter", tenant=tenant, subject="ada")
    oscar = server.person("operator", tenant=tenant, subject="oscar")
    job = await submit_one(ada)
    own = await submit_one(oscar)
    await steer(oscar, job, verb, **body)
    await steer(oscar, own, verb, **body)
    entry, *refusals = written = await log(oscar)
    assert (entry["by"], entry["what"], entry["on"], entry["why"]) == ("oscar", f"job.{verb}", job, "wrong input")
    assert entry["detail"]["owner"] == "ada"
    # A job that is waiting cannot be retried.
    assert [refusal["what"] for refusal in refusals] == (["job.retry.refused"] if verb == "retry" else [])
    refused = await steer(server.person("submitter", tenant=tenant, subject="eve"), job, "cancel")
    problem(refused, 403)
    assert await log(oscar) == written, "what was not allowed was not done"


async def test_the_log_is_a_chain_that_can_be_checked_from_outside(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    oscar, paula = (
        server.person("operator", tenant=tenant, subject="oscar"),
        other.person("operator", tenant=tenant, subject="paula"),
    )
    for number in range(6):
        who = (oscar, paula)[number % 2]
        await who.post(f"/v1/safeguards/{('stop', 'go')[number % 2]}", json={"reason": f"r{number}"})
    entries = await log(paula, start=1)
    assert [entry["number"] for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert [entry["by"] for entry in entries] == ["oscar", "paula"] * 3
    assert check_public(entries).broken is None
    assert [record["number"] for record in await log(oscar, limit=2)] == [5, 6]
    assert check_public([*entries[:2], entries[2] | {"why": "another"}, *entries[3:]]).broken == 3
    assert await log(server.person("operator", tenant=f"{tenant}-x")) == [], "each tenant has its own"


async def test_changes_of_rules_are_written_down(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant, subject="ann")
    rule = await added(ann, 'cause == "memory"', MEMORY, description="too little memory")
    await ann.post(f"/v1/rules/domain/site/rules/{rule}/state", json={})
    await ann.post("/v1/rules/domain/site/rollback", json={"version": 1})
    await ann.delete(f"/v1/rules/domain/site/rules/{rule}", params={"confirmed": "true"})
    entries = await log(ann)
    assert [entry["what"] for entry in entries] == ["rule.add", "rule.state", "rule.rollback", "rule.remove"]
    assert (entries[0]["on"], entries[0]["why"]) == ("domain/site", "too little memory")
    assert entries[0]["detail"]["condition"] == 'cause == "memory"'
    assert (entries[1]["on"], entries[1]["detail"]["state"]) == (f"domain/site#{rule}", "active")
