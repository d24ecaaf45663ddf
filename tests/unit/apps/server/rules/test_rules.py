"""Rules over HTTP: written for a run that is there, shown in words, promoted, gone back on; each tenant for itself."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

MEMORY = {"cause": "memory", "job": {"attempt": 1}, "evidence": {"exit_code": 137}}


def draft(condition: str, context: dict[str, Any], reference_incident: str = "i1", **more: Any) -> dict[str, Any]:
    conclusion = {"steps": [{"action": "hold"}]}
    return {
        "type": "abort",
        "condition": condition,
        "conclusion": conclusion,
        "reference_incident": reference_incident,
        "context": context,
        **more,
    }


async def added(client: httpx.AsyncClient, *arguments: Any, **more: Any) -> str:
    answer = await client.post("/v1/rules/domain/site", json=draft(*arguments, **more))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["rule"])


@pytest.mark.ledger("P1-35")
async def test_a_rule_is_a_shadow_until_it_is_promoted(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    rule = await added(ann, 'cause == "memory"', MEMORY, description="too little memory")
    ask = {"type": "abort", "task": "align", "context": MEMORY}
    body = (await ann.post("/v1/rules/test", json=ask)).json()
    assert (body["verdict"], body["active"]["conclusion"], body["shadow"]["rule"]) == ("false", None, rule)
    assert (await ann.post(f"/v1/rules/domain/site/rules/{rule}/state", json={})).json()["version"] == 2
    body = (await ann.post("/v1/rules/test", json=ask)).json()
    assert (body["verdict"], body["active"]["rule"], body["shadow"]) == ("true", rule, None)
    assert body["active"]["conclusion"] == {"steps": [{"action": "hold"}]}
    assert body["words"] == ['domain/site abort:*: if cause == "memory" → true', f"rule {rule} decides"]
    whole = (await ann.get("/v1/rules/domain/site")).json()
    assert whole["trees"][0]["words"] == ['if cause == "memory" then hold']
    other_rule = (await ann.get(f"/v1/rules/domain/site/rules/{rule}")).json()["rule"]
    assert other_rule["effective"] == 'if cause == "memory" then hold'


@pytest.mark.ledger("P1-33")
async def test_what_overturns_a_reference_incident_is_shown_and_refused(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    await added(ann, 'cause == "memory"', MEMORY)
    later = draft("evidence.exit_code == 137", {**MEMORY, "job": {"attempt": 2}}, "i2")
    later["conclusion"] = {"steps": [{"action": "retry"}]}
    returned_problem = problem(await ann.post("/v1/rules/domain/site", json=later), 409)
    assert [error["at"] for error in returned_problem["errors"]] == ["rule", "reference incident i1"]
    done = (await ann.post("/v1/rules/domain/site", json=later | {"confirmed": True})).json()
    assert [entry["reference_incident"] for entry in done["overturned"]] == ["i1"]


async def test_everything_that_is_wrong_is_told_with_its_place(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    returned_problem = problem(
        await ann.post("/v1/rules/domain/site", json=draft("cuase == 1 &&\n nope", {"hots": 1})), 422
    )
    assert {error["at"] for error in returned_problem["errors"]} == {"condition:1:1", "condition:2:2", "rule"}
    problem(await ann.post("/v1/rules/domain/site", json=draft('cause == "disk"', MEMORY)), 422)
    problem(await ann.post("/v1/rules/domain/site", json={**draft("true", MEMORY), "context": None}), 404)
    problem(await ann.get("/v1/rules/domain/site"), 404)


async def test_versions_differ_and_are_come_back_to(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    first = await added(ann, 'cause == "memory"', MEMORY)
    second = await added(ann, 'cause == "disk"', {"cause": "disk"}, "i2")
    changes = (await ann.get("/v1/rules/domain/site/diff", params={"old": 1})).json()["changes"]
    assert [(change["change"], change["rule"]) for change in changes] == [("added", second)]
    assert (await ann.post("/v1/rules/domain/site/rollback", json={"version": 1})).json()["version"] == 3
    versions = (await ann.get("/v1/rules/domain/site/versions")).json()["versions"]
    assert (versions[0]["number"], versions[0]["note"]) == (3, "back to version 1")
    problem(await ann.delete(f"/v1/rules/domain/site/rules/{first}"), 409)
    assert (await ann.delete(f"/v1/rules/domain/site/rules/{first}", params={"confirmed": "true"})).json()[
        "version"
    ] == 4
    problem(await ann.get("/v1/rules/domain/site", params={"version": 9}), 404)


async def test_rules_of_another_tenant_are_not_there_and_viewers_change_nothing(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    rule = await added(ann, 'cause == "memory"', MEMORY)
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    assert (await eve.get("/v1/rules")).json() == {"rule_sets": []}
    for path in ("", f"/rules/{rule}", "/diff?old=1"):
        problem(await eve.get(f"/v1/rules/domain/site{path}"), 404)
    assert (await eve.get("/v1/rules/domain/site/versions")).json() == {"versions": []}
    problem(await eve.post(f"/v1/rules/domain/site/rules/{rule}/state", json={}), 404)
    body = (await eve.post("/v1/rules/test", json={"type": "abort", "context": MEMORY})).json()
    assert (body["verdict"], body["shadow"]) == ("false", None)
    viewer = server.person("viewer", tenant=tenant)
    problem(await viewer.post("/v1/rules/domain/site", json=draft("true", MEMORY)), 403)
    problem(await viewer.delete(f"/v1/rules/domain/site/rules/{rule}"), 403)


async def test_the_context_describes_itself(server: RunningServer, tenant: str) -> None:
    viewer = server.person("viewer", tenant=tenant)
    fields = {field["name"]: field for field in (await viewer.get("/v1/rules/context")).json()["fields"]}
    assert fields["evidence.exit_code"] == {
        "name": "evidence.exit_code",
        "type": "int",
        "optional": True,
        "words": "the exit code",
    }
