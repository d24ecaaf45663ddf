"""Exlets by name over HTTP: checked as a whole, kept by their content, and what the rules of several sets conclude."""

from __future__ import annotations

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

MORE = "forestay: 1\nname: more-memory\nsteps:\n- {action: resubmit, how: changed, needs: {memory: {factor: 2, at_most: 64 GiB}}}\n"
MEMORY = {"cause": "memory", "job": {"attempt": 1}}


async def test_the_content_of_an_exlet_is_its_version_and_the_name_is_the_newest(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    first = (await ann.put("/v1/exlets/more-memory", json={"text": MORE})).json()
    again = (await ann.put("/v1/exlets/more-memory", json={"text": MORE, "type": "abort"})).json()
    assert again == first
    assert first["steps"] == ["resubmit"]
    second = (await ann.put("/v1/exlets/more-memory", json={"text": MORE.replace("2", "4")})).json()
    assert [one["version"] for one in second["versions"]] == [second["version"], first["version"]]
    newest = (await ann.get("/v1/exlets/more-memory")).json()
    assert newest["exlet"]["steps"][0]["needs"]["memory"]["factor"] == 4
    old = (await ann.get("/v1/exlets/more-memory", params={"version": first["version"]})).json()
    assert (old["exlet"], old["by"]) == (first["exlet"], first["by"])
    # What was shown can be sent as it is.
    back = (await ann.put("/v1/exlets/more-memory", json={"text": old["text"]})).json()
    assert back["versions"][0]["version"] == first["version"]
    await server.refresh()
    assert [one["name"] for one in (await ann.get("/v1/exlets")).json()["exlets"]] == ["more-memory"]


async def test_everything_that_is_wrong_is_told_and_nothing_is_kept(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    wrong = (
        "name: mend\nsteps: [continue item, {action: compensate, worklets: [abc]}, {action: ladder, ladder: tall}]\n"
    )
    told = problem(await ann.put("/v1/exlets/mind", json={"text": wrong}), 422)
    said = " ".join(one["detail"] for one in told["errors"])
    assert "suspend" in said
    worklet = "name: mend\nsteps: [{action: compensate, worklets: [abc]}]\n"
    told = problem(await ann.put("/v1/exlets/mind", json={"text": worklet}), 422)
    said = " ".join(one["detail"] for one in told["errors"])
    assert "there is no worklet 'abc'" in said
    assert "the text has the name mend, the address mind" in said
    told = problem(
        await ann.put("/v1/exlets/m", json={"text": "name: m\nsteps: [restart item]\n", "type": "item-pre"}), 422
    )
    assert len(told["errors"]) == 1
    problem(await ann.put("/v1/exlets/m", json={"text": "steps: [\n"}), 422)
    problem(await ann.get("/v1/exlets/mend"), 404)
    assert (await ann.get("/v1/exlets")).json() == {"exlets": []}


async def test_exlets_of_another_tenant_are_not_there_and_viewers_keep_none(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    assert (await ann.put("/v1/exlets/more-memory", json={"text": MORE})).status_code == 200
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    problem(await eve.get("/v1/exlets/more-memory"), 404)
    assert (await eve.get("/v1/exlets")).json() == {"exlets": []}
    problem(await server.person("viewer", tenant=tenant).put("/v1/exlets/more-memory", json={"text": MORE}), 403)


@pytest.mark.ledger("P1-20")
async def test_rules_of_several_sets_conclude_one_exlet_and_none_that_is_not_there(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    rule = {
        "type": "abort",
        "condition": 'cause == "memory"',
        "conclusion": {"exlet": "more-memory"},
        "cornerstone": "i1",
        "context": MEMORY,
    }
    told = problem(await ann.post("/v1/rules/domain/house", json=rule), 422)
    assert "there is no exlet 'more-memory'" in told["errors"][0]["detail"]
    assert (await ann.put("/v1/exlets/more-memory", json={"text": MORE})).status_code == 200
    for rule_set in ("domain/house", "flow/align", "flow/call"):
        assert (await ann.post(f"/v1/rules/{rule_set}", json=rule)).status_code == 200
    # It is for jobs: a rule about a case cannot conclude it.
    told = problem(await ann.post("/v1/rules/flow/call", json=rule | {"type": "case-pre"}), 422)
    assert "the exlet more-memory is not valid for case-pre" in told["errors"][0]["detail"]
