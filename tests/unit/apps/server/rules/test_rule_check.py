"""What an editor of rules is told while somebody writes."""

from __future__ import annotations

from typing import Any

from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.rules.test_rules import MEMORY
from tests.unit.apps.server.running import RunningServer


async def test_a_draft_is_tried_on_its_reference_incident(local: RunningServer, tenant: str) -> None:
    ann = local.person("rule-author", tenant=tenant)

    async def said(condition: str, **more: Any) -> dict[str, Any]:
        answer = await ann.post("/v1/rules/check", json={"condition": condition, "context": MEMORY, **more})
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    assert (await said('cause == "memory"'))["answer"] == "true"
    assert (await said('cause == "disk"'))["answer"] == "false"
    wrong = await said('cause == "memory" && nothing > 1')
    assert wrong["answer"] is None
    assert (wrong["problems"][0]["line"], wrong["problems"][0]["column"]) == (1, 22)
    assert (await said(""))["answer"] is None
    values = (await said("true"))["values"]
    assert (values["cause"], values["evidence.exit_code"]) == ("memory", 137)


async def test_steps_are_checked_as_they_are_drawn(local: RunningServer, tenant: str) -> None:
    ann = local.person("rule-author", tenant=tenant)
    for steps, good in (([{"action": "resubmit"}], True), ([{"action": "continue"}], False), ([], False)):
        body = {"type": "abort", "context": MEMORY, "conclusion": {"steps": steps}}
        wrong = (await ann.post("/v1/rules/check", json=body)).json()["conclusion"]
        assert (wrong == []) is good, wrong


async def test_who_may_have_drafts_tried(local: RunningServer, tenant: str) -> None:
    for role in ("viewer", "submitter", "approver"):
        problem(await local.person(role, tenant=tenant).post("/v1/rules/check", json={}), 403)
    problem(await local.person("rule-author", tenant=tenant).post("/v1/rules/check", json={"incident": "none"}), 404)
