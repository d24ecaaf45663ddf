"""The compensation library over HTTP: checked as a whole, kept by its content, per tenant; without an engine no run has a stack."""

from __future__ import annotations

import json

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer

RELEASE = 'forestay: 1\naction: reserve-slot\ndescription: Give a slot back.\nrun: release "${params.slot}" ${task.result.id}\n'
PLACE = "/v1/compensations/reserve-slot"


@pytest.mark.ledger("P2-01")
async def test_the_content_is_the_version_and_the_action_stands_for_the_newest(
    server: RunningServer, tenant: str
) -> None:
    ann = server.person("operator", tenant=tenant)
    first = (await ann.put(PLACE, json={"text": RELEASE})).json()
    assert (await ann.put(PLACE, json={"text": RELEASE})).json() == first
    assert (first["action"], first["description"]) == ("reserve-slot", "Give a slot back.")
    second = (await ann.put(PLACE, json={"text": RELEASE + "tries: 5\n"})).json()
    assert [version["version"] for version in second["versions"]] == [second["version"], first["version"]]
    assert (await ann.get(PLACE)).json() == second
    old = (await ann.get(PLACE, params={"version": first["version"]})).json()
    assert (old["text"], old["versions"]) == (first["text"], [])
    # What was shown can be sent as it is.
    assert (await ann.put(PLACE, json={"text": old["text"]})).json()["version"] == first["version"]
    of_task = json.dumps({"action": "slots:request", "command": ["withdraw", "${run}"]})
    assert (await ann.put("/v1/compensations/slots:request", json={"text": of_task})).status_code == 200
    await server.refresh()
    shown = (await ann.get("/v1/compensations")).json()["compensations"]
    assert [compensation["action"] for compensation in shown] == ["reserve-slot", "slots:request"]


async def test_everything_that_is_wrong_is_told_and_nothing_is_kept(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    wrong = {"action": "other", "command": ["undo", "${tasks.a.result}", "${task.nothing}"], "wait": False, "tries": 0}
    refused = problem(await ann.put(PLACE, json={"text": json.dumps(wrong)}), 422)
    text = " ".join(error["detail"] for error in refused["errors"])
    for words in ("knows no other tasks", "result, exit_code, outputs", "always waits", "1 to 100 times"):
        assert words in text
    named = problem(await ann.put(PLACE, json={"text": RELEASE.replace("reserve-slot", "other")}), 422)
    assert "the address for reserve-slot" in named["errors"][0]["detail"]
    problem(await ann.put(PLACE, json={"text": "action: reserve-slot\n"}), 422)
    problem(await ann.put("/v1/compensations/a:b:c", json={"text": RELEASE}), 422)
    problem(await ann.get(PLACE), 404)
    assert (await ann.get("/v1/compensations")).json() == {"compensations": []}


async def test_who_may_register_and_who_may_look(server: RunningServer, tenant: str) -> None:
    ann = server.person("operator", tenant=tenant)
    assert (await ann.put(PLACE, json={"text": RELEASE})).status_code == 200
    vic = server.person("viewer", tenant=tenant)
    problem(await vic.put(PLACE, json={"text": RELEASE}), 403)
    assert (await vic.get(PLACE)).status_code == 200
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    problem(await eve.get(PLACE), 404)
    problem(await vic.post("/v1/runs/r/compensations/1/rebind", json={}), 403)
    problem(await ann.get("/v1/runs/r/compensations"), 501)
