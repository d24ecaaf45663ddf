"""Rules replayed over HTTP: over the incidents of the caller's tenant, and before a rule may act."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.rules.test_rules import added, draft
from tests.unit.apps.server.running import RunningServer
from tests.unit.services.recorded import Story, record

from forestay.domain.jobs.job_document import State

NODE = {"cause": "node", "job": {"attempt": 1}}


def stories(tenant: str) -> list[Story]:
    return [
        Story(f"{tenant}-n1", ["node"], tenant=tenant),
        Story(f"{tenant}-c1", ["code", "code"], end=State.FAILED, decisions=["retry", "fail"], tenant=tenant),
    ]


async def recorded(server: RunningServer, tenant: str) -> dict[str, list[str]]:
    parts = server.services.components
    return await record(parts.store, parts.incidents, *stories(tenant))


async def replayed(client: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await client.post("/v1/rules/domain/site/replay", json=asked)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.ledger("P1-34")
async def test_a_replay_tells_what_would_differ_and_what_would_be_wrong(server: RunningServer, tenant: str) -> None:
    names = await recorded(server, tenant)
    ann = server.person("operator", tenant=tenant)
    rule = await added(ann, 'cause == "node"', NODE)
    fields = await replayed(ann)
    assert (fields["incidents"], fields["differs"], fields["wrong"], fields["all"]) == (3, 1, 1, True)
    assert fields["wrong_by"] == {"stops": 1}
    (value,) = fields["examples"]
    assert (value["incident"], value["then"]["way"], value["now"]["by"]) == (
        names[f"{tenant}-n1"][0],
        "retry",
        f"domain/site#{rule}",
    )
    assert (value["came"], value["wrong"]) == ("recovered", "stops")
    assert (await replayed(ann, acting=True))["differs"] == 0
    later = draft('cause == "code"', {"cause": "code"}, "i2")
    fields = await replayed(ann, rules=[later], acting=True)
    assert (fields["drafts"], fields["core_hours_saved"]) == (["domain/site#draft-1"], round(1200 / 3600, 3))
    assert (await replayed(ann, since="2001-01-01T00:00:00Z", until="2002-01-01T00:00:00Z"))["incidents"] == 0


@pytest.mark.ledger("P1-34")
async def test_a_rule_whose_replay_speaks_against_it_wants_a_reason(server: RunningServer, tenant: str) -> None:
    await recorded(server, tenant)
    ann = server.person("operator", tenant=tenant)
    rule = await added(ann, 'cause == "node"', NODE)
    state = f"/v1/rules/domain/site/rules/{rule}/state"
    returned_problem = problem(await ann.post(state, json={}), 409)
    assert "would stop a job" in returned_problem["detail"]
    problem(await ann.post(state, json={"confirmed": True}), 409)
    done = (await ann.post(state, json={"confirmed": True, "reason": "sick nodes"})).json()
    assert (done["version"], done["replayed"]["rule"]["wrong"]) == (2, 1)
    versions = (await ann.get("/v1/rules/domain/site/versions")).json()["versions"]
    assert versions[0]["replayed"]["reason"] == "sick nodes"
    assert versions[1]["replayed"] is None
    root = server.person("administrator", tenant=tenant)
    entries = (await root.get("/v1/audit")).json()["entries"]
    (noted,) = [entry for entry in entries if entry["what"] == "rule.state"]
    assert (noted["why"], noted["detail"]["replay"]["incidents"]) == ("sick nodes", 3)


async def test_how_far_it_is_is_told_on_the_way(server: RunningServer, tenant: str) -> None:
    await recorded(server, tenant)
    ann = server.person("operator", tenant=tenant)
    headers = {"Accept": "text/event-stream"}
    answer = await ann.post("/v1/rules/domain/site/replay", json={}, headers=headers)
    events = [dict(line.split(": ", 1) for line in part.splitlines()) for part in answer.text.strip().split("\n\n")]
    assert {event["event"] for event in events[:-1]} == {"progress"}
    assert events[-1]["event"] == "answer"
    assert json.loads(events[-1]["data"])["incidents"] == 3
    bad = await ann.post("/v1/rules/domain/site/replay", json={"version": 7}, headers=headers)
    assert '"status":404' in bad.text


async def test_who_may_replay_what(server: RunningServer, tenant: str) -> None:
    await recorded(server, tenant)
    viewer = server.person("viewer", tenant=tenant)
    problem(await viewer.post("/v1/rules/domain/site/replay", json={}), 403)
    eve = server.person("operator", tenant=f"{tenant}-eve")
    assert (await replayed(eve))["incidents"] == 0
    returned_problem = problem(await eve.post("/v1/rules/domain/site/replay", json={"since": "yesterday"}), 422)
    assert "since" in returned_problem["detail"]
    problem(await eve.post("/v1/rules/domain/site/replay", json={"promoted": "none"}), 404)
    problem(await eve.post("/v1/rules/domain/site/replay", json={"rules": [draft("nope", NODE)]}), 422)
    # What cannot be added is not replayed either.
    unknown = draft('cause == "node"', NODE, conclusion={"playbook": "no-such-playbook"})
    author = server.person("rule-author", "operator", tenant=f"{tenant}-eve")
    for path, body in (("", unknown), ("/replay", {"rules": [unknown]})):
        refused = problem(await author.post(f"/v1/rules/domain/site{path}", json=body), 422)
        assert "there is no playbook 'no-such-playbook'" in str(refused)


async def test_the_server_answers_while_it_replays(server: RunningServer, tenant: str) -> None:
    parts = server.services.components
    many = [Story(f"{tenant}-{place}", ["node", "code"], tenant=tenant) for place in range(300)]
    await record(parts.store, parts.incidents, *many)
    ann = server.person("operator", tenant=tenant)
    await added(
        ann, 'evidence.log_tail.exists(line, line.contains("it failed"))', {"evidence": {"log_tail": ["it failed"]}}
    )
    gaps, last = [0.0] * 4, time.thread_time()
    working = asyncio.create_task(replayed(ann))
    while not working.done():
        await asyncio.sleep(0)
        now = time.thread_time()
        gaps.append(now - last)
        last = now
    assert (await working)["incidents"] == 600
    # In CPU time of the loop's own thread, of which a replay takes hundreds of milliseconds. Garbage is collected now and then: a few turns may be long.
    assert sorted(gaps)[-4] < 0.05


@pytest.mark.ledger("P0-30")
async def test_a_rule_is_proposed_from_what_recovered_failures(server: RunningServer, tenant: str) -> None:
    parts = server.services.components
    recovered = [
        Story(
            f"{tenant}-m{place}", [{"cause": "memory", "by": "bob"}], decisions=["hold"], memory=1 << 31, tenant=tenant
        )
        for place in range(4)
    ]
    await record(parts.store, parts.incidents, *recovered)
    ann = server.person("operator", tenant=tenant)
    body = (await ann.get("/v1/rules/domain/site/proposals")).json()
    assert (body["incidents"], body["all"]) == (4, True)
    (value,) = body["proposals"]
    assert (value["helped"], value["tried"], value["by_hand"], value["remedy"]) == (4, 4, 4, "more")
    assert value["replay"]["wrong"] == 0
    newest = (await ann.get("/v1/incidents")).json()["incidents"][0]
    for error, many in ((newest["fingerprint"], 4), ("1-000000000000", 0)):
        alone = (await ann.get("/v1/rules/domain/site/proposals", params={"fingerprint": error})).json()
        assert (alone["incidents"], len(alone["proposals"])) == (many, bool(many))
        assert {proposal["fingerprint"] for proposal in alone["proposals"]} <= {error}
    place = f"/v1/rules/domain/site/proposals/{value['id']}/dismiss"
    problem(await server.person("viewer", tenant=tenant).post(place, json={}), 403)
    problem(await ann.post("/v1/rules/domain/site/proposals/nothing/dismiss", json={}), 422)
    assert (await server.person("operator", tenant=f"{tenant}-eve").post(place, json={})).status_code == 200
    assert len((await ann.get("/v1/rules/domain/site/proposals")).json()["proposals"]) == 1, "each tenant for itself"
    rule = value["rule"]
    assert rule["conclusion"]["steps"][0]["needs"] == {"memory": {"factor": 2.0, "at_most": 1 << 31}}
    done = await ann.post("/v1/rules/domain/site", json=rule)
    assert done.status_code == 200, done.text
    returned_body = (await ann.post("/v1/rules/test", json={"incident": rule["reference_incident"]})).json()
    assert (returned_body["verdict"], returned_body["shadow"]["rule"]) == ("false", done.json()["rule"]), (
        "it is a shadow, and does not act"
    )
    assert (await ann.get("/v1/rules/domain/site/proposals")).json()["proposals"] == [], "it is said already"
    eve = server.person("operator", tenant=f"{tenant}-eve")
    assert (await eve.get("/v1/rules/domain/site/proposals")).json()["proposals"] == []
    problem(await server.person("viewer", tenant=tenant).get("/v1/rules/domain/site/proposals"), 403)
