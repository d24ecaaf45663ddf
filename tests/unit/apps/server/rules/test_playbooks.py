"""Playbooks by name over HTTP: checked as a whole, kept by their content, and what the rules of several sets conclude."""

from __future__ import annotations

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

MORE = "forestay: 1\nname: more-memory\nsteps:\n- {action: resubmit, how: changed, needs: {memory: {factor: 2, at_most: 64 GiB}}}\n"
MEMORY = {"cause": "memory", "job": {"attempt": 1}}


async def test_the_content_of_a_playbook_is_its_version_and_the_name_is_the_newest(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    first = (await ann.put("/v1/playbooks/more-memory", json={"text": MORE})).json()
    again = (await ann.put("/v1/playbooks/more-memory", json={"text": MORE, "type": "abort"})).json()
    assert again == first
    assert first["steps"] == ["resubmit"]
    second = (await ann.put("/v1/playbooks/more-memory", json={"text": MORE.replace("2", "4")})).json()
    assert [version["version"] for version in second["versions"]] == [second["version"], first["version"]]
    newest = (await ann.get("/v1/playbooks/more-memory")).json()
    assert newest["playbook"]["steps"][0]["needs"]["memory"]["factor"] == 4
    old = (await ann.get("/v1/playbooks/more-memory", params={"version": first["version"]})).json()
    assert (old["playbook"], old["by"]) == (first["playbook"], first["by"])
    # What was shown can be sent as it is.
    back = (await ann.put("/v1/playbooks/more-memory", json={"text": old["text"]})).json()
    assert back["versions"][0]["version"] == first["version"]
    await server.refresh()
    assert [playbook["name"] for playbook in (await ann.get("/v1/playbooks")).json()["playbooks"]] == ["more-memory"]


async def test_everything_that_is_wrong_is_told_and_nothing_is_kept(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    wrong = "name: fix\nsteps: [continue task, {action: compensate, worklets: [abc]}, {action: retry, retry policy: tall}]\n"
    returned_problem = problem(await ann.put("/v1/playbooks/mind", json={"text": wrong}), 422)
    text = " ".join(error["detail"] for error in returned_problem["errors"])
    assert "suspend" in text
    worklet = "name: fix\nsteps: [{action: compensate, worklets: [abc]}]\n"
    returned_problem = problem(await ann.put("/v1/playbooks/mind", json={"text": worklet}), 422)
    text = " ".join(error["detail"] for error in returned_problem["errors"])
    assert "there is no worklet 'abc'" in text
    assert "the text has the name fix, the address mind" in text
    returned_problem = problem(
        await ann.put("/v1/playbooks/m", json={"text": "name: m\nsteps: [restart task]\n", "type": "task-pre"}), 422
    )
    assert len(returned_problem["errors"]) == 1
    problem(await ann.put("/v1/playbooks/m", json={"text": "steps: [\n"}), 422)
    problem(await ann.get("/v1/playbooks/recover"), 404)
    assert (await ann.get("/v1/playbooks")).json() == {"playbooks": []}


async def test_playbooks_of_another_tenant_are_not_there_and_viewers_keep_none(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    assert (await ann.put("/v1/playbooks/more-memory", json={"text": MORE})).status_code == 200
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    problem(await eve.get("/v1/playbooks/more-memory"), 404)
    assert (await eve.get("/v1/playbooks")).json() == {"playbooks": []}
    problem(await server.person("viewer", tenant=tenant).put("/v1/playbooks/more-memory", json={"text": MORE}), 403)


@pytest.mark.ledger("P1-20")
async def test_rules_of_several_sets_conclude_one_playbook_and_none_that_is_not_there(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    rule = {
        "type": "abort",
        "condition": 'cause == "memory"',
        "conclusion": {"playbook": "more-memory"},
        "reference_incident": "i1",
        "context": MEMORY,
    }
    returned_problem = problem(await ann.post("/v1/rules/domain/site", json=rule), 422)
    assert "there is no playbook 'more-memory'" in returned_problem["errors"][0]["detail"]
    assert (await ann.put("/v1/playbooks/more-memory", json={"text": MORE})).status_code == 200
    for rule_set in ("domain/site", "flow/align", "flow/call"):
        assert (await ann.post(f"/v1/rules/{rule_set}", json=rule)).status_code == 200
    # It is for jobs: a rule about a run cannot conclude it.
    returned_problem = problem(await ann.post("/v1/rules/flow/call", json=rule | {"type": "run-pre"}), 422)
    assert "the playbook more-memory is not valid for run-pre" in returned_problem["errors"][0]["detail"]
