"""A job of another tenant does not exist, and nothing in one's own envelope reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, status, steer, submit_one
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of

READS = ("", "/specification", "/story", "/log", "/log?follow=true", "/outputs")
VERBS: dict[str, dict[str, Any]] = {
    "cancel": {},
    "hold": {"reason": "mine now"},
    "continue": {"holder": "ada"},
    "release": {"expected_attempt": 1, "expected_claim": "c", "reason": "r"},
    "retry": {},
    "force-complete": {"expected_attempt": 1, "reason": "r"},
    "force-fail": {"expected_attempt": 1, "reason": "r"},
}


async def test_a_foreign_job_is_not_there(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, {"labels": {"secret": "yes"}, "name": "secret"})
    before = await read(ada, job)
    eve = server.person("administrator", tenant=f"{tenant}-eve", subject="ada")
    for path in READS:
        returned_problem = problem(await eve.get(f"/v1/jobs/{job}{path}"), 404)
        # The same words as for a job that never was: the answer does not say which of the two it is.
        nothing = problem(await eve.get(f"/v1/jobs/{'0' * len(job)}{path}"), 404)
        assert returned_problem["detail"].replace(job, "") == nothing["detail"].replace("0" * len(job), "")
    for verb, body in VERBS.items():
        problem(await steer(eve, job, verb, **body), 404)
    await server.refresh()
    for filters in ({}, {"id": job}, {"name": "secret"}, {"label": "secret=yes"}, {"owner": "ada"}):
        assert (await eve.get("/v1/jobs", params=filters)).json()["jobs"] == []
        assert (await eve.get("/v1/jobs/counts", params=filters)).json()["counts"] == {}
    assert (await eve.get("/v1/status")).json()["jobs"] == {}
    assert await read(ada, job) == before


async def test_events_of_another_tenant_are_not_told(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    async with read_events(eve, "/v1/events") as seen:
        await seen.wait_for("open")
        await submit_one(ada)
        mine = await submit_one(eve)
        await seen.wait_for("job", lambda data: data["job"]["id"] == mine)
        await steer(eve, mine, "cancel")
        await seen.wait_for("job", lambda data: data["job"]["state"] == "cancelled")
        assert {event.data["job"]["id"] for event in seen.named("job")} == {mine}


async def test_pilots_and_alerts_of_another_tenant_are_not_shown(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    await server.refresh()
    ada = server.person("viewer", tenant=tenant)
    eve = server.person("administrator", tenant=f"{tenant}-eve")
    assert [other_pilot["id"] for other_pilot in (await ada.get("/v1/pilots")).json()["pilots"]] == [pilot.name]
    assert (await eve.get("/v1/pilots")).json()["pilots"] == []
    assert all(alert["job"] is None for alert in (await eve.get("/v1/alerts")).json()["alerts"])


async def test_a_pilot_gets_jobs_of_its_own_tenant_only(server: RunningServer, tenant: str) -> None:
    await submit_one(server.person("submitter", tenant=tenant))
    foreign = await ScriptedPilot.register(server, f"{tenant}-eve")
    assert await foreign.claim(wait=1.5) == []
    own = await ScriptedPilot.register(server, tenant)
    assert len(await own.claim()) == 1


async def test_a_pilot_speaks_for_itself_only(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    two = await ScriptedPilot.register(server, tenant)
    thief = server.client(pilot.token)
    requests: dict[str, dict[str, Any]] = {
        "heartbeat": {"counter": 9},
        "claims": {},
        "log": {"claim": "c"},
        "token": {},
    }
    for what, body in requests.items():
        problem(await thief.post(f"/v1/pilots/{two.name}/{what}", json=body), 403)
    problem(await thief.get(f"/v1/pilots/{two.name}/channel?session=9"), 403)
    problem(await thief.delete(f"/v1/pilots/{two.name}"), 403)


@pytest.mark.parametrize("outcome", ["ok", "failure"])
async def test_a_foreign_end_in_ones_own_envelope_changes_nothing(
    server: RunningServer, tenant: str, outcome: str
) -> None:
    """The inner ids are compared with who sends them; the foreign job neither changes nor shows what was sent."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    holder = await ScriptedPilot.register(server, tenant)
    claim = await holder.claim_one()
    before = await read(ada, job)
    eve = await ScriptedPilot.register(server, f"{tenant}-eve")
    end = end_of(claim, outcome=outcome, log_tail="words of the thief", reason="words of the thief")
    seen = server.services.completions.intrusions
    answer = await eve.post("completions", {"completions": [end]})
    assert server.services.completions.intrusions > seen, "whoever watches the figures sees it"
    (result,) = answer.json()["results"]
    assert result["result"] == "superseded"
    assert result["detail"] == "there is no such job"
    await server.refresh()
    assert await read(ada, job) == before
    assert "thief" not in (await ada.get(f"/v1/jobs/{job}/story")).text
    assert "thief" not in (await ada.get(f"/v1/jobs/{job}/log")).text
    assert await holder.end(claim, log_tail="words of the owner") == ["committed"]
    await server.refresh()
    assert (await ada.get(f"/v1/jobs/{job}/log")).text == "words of the owner"
    assert "thief" not in (await ada.get(f"/v1/jobs/{job}/story")).text


async def test_the_end_of_another_pilots_claim_changes_nothing(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    holder = await ScriptedPilot.register(server, tenant)
    other = await ScriptedPilot.register(server, tenant)
    claim = await holder.claim_one()
    before = await status(ada, job)
    assert await other.end(claim, log_tail="not mine") == ["unknown"]
    forged = dict(claim, claim="f" * 32)
    assert await holder.end(forged) == ["superseded"]
    assert await holder.end(dict(claim, attempt=2)) == ["superseded"]
    assert await holder.end(dict(claim, generation=1)) == ["superseded"]
    # A refusal is proven by writing the document once more as it is, which gives it another version.
    assert await status(ada, job) | {"version": ""} == before | {"version": ""}
    assert await holder.end(claim, log_tail="mine") == ["committed"]
    await server.refresh()
    assert (await ada.get(f"/v1/jobs/{job}/log")).text == "mine"


async def test_a_heartbeat_that_names_foreign_claims_keeps_and_frees_nothing(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    holder = await ScriptedPilot.register(server, tenant)
    claim = await holder.claim_one()
    before = await read(ada, job)
    eve = await ScriptedPilot.register(server, f"{tenant}-eve")
    assert (await eve.heartbeat(claim["claim"]))["cancel"] == []
    await eve.bye()
    assert await read(ada, job) == before


async def test_a_foreign_pilot_cannot_write_into_a_followed_log(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    holder = await ScriptedPilot.register(server, tenant)
    async with holder.channel() as orders:
        claim = await holder.claim_one()
        eve = await ScriptedPilot.register(server, f"{tenant}-eve")
        async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as seen:
            await orders.wait_for("log")
            piece = {"claim": claim["claim"], "offset": 0, "text": "words of the thief", "last": False}
            await eve.post("log", piece)
            await holder.post("log", piece | {"text": "mine", "last": True})
            await seen.wait_for("end")
            assert [event.data["text"] for event in seen.named("log")] == ["mine"]


async def test_a_submitter_steers_its_own_jobs_only(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    bob = server.person("submitter", tenant=tenant, subject="bob")
    operator = server.person("operator", tenant=tenant, subject="olga")
    job = await submit_one(ada)
    for verb in ("cancel", "hold", "continue"):
        problem(await steer(bob, job, verb), 403)
    for verb in ("release", "retry", "force-complete", "force-fail"):
        problem(await steer(ada, job, verb, **VERBS[verb]), 403)
    assert (await steer(ada, job, "hold")).json()["holders"] == ["ada"]
    assert (await steer(operator, job, "hold")).json()["holders"] == ["ada", "olga"]
    problem(await steer(ada, job, "continue", holder="olga"), 403)
    assert (await steer(ada, job, "continue")).json()["holders"] == ["olga"]
    assert (await steer(operator, job, "continue", holder="olga")).json()["holders"] == []
    assert (await steer(operator, job, "cancel")).json()["state"] == "cancelled"


async def test_only_an_operator_submits_for_others(server: RunningServer, tenant: str) -> None:
    body = {"specification": {"command": ["true"]}, "jobs": [{"owner": "bob"}]}
    refused = await server.person("submitter", tenant=tenant).post("/v1/jobs", json=body)
    assert problem(refused, 422)["errors"] == [
        {"at": "body.jobs.0.owner", "detail": "only an operator may submit for others"}
    ]
    operator = server.person("operator", tenant=tenant)
    job = (await operator.post("/v1/jobs", json=body)).json()["jobs"][0]["id"]
    assert (await read(operator, job))["owner"] == "bob"
