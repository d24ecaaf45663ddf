"""The batch system's word on a pilot's batch job frees what the pilot held, at once where it says that nothing of it runs."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.sites.test_sites import open_launches, plan, tell

from forestay.apps.compose.reconciler import ReconcilerComponents

NEEDS = {"cpus": 1, "memory": 1 << 30, "disk": 1 << 30, "gpus": 0}


async def pilot_of_launch(server: RunningServer, agent: httpx.AsyncClient, launch: str) -> str:
    await plan(agent, launch)
    await tell(agent, launch, "submitted", batch_job=f"b-{launch}")
    secret = (await agent.post("/v1/enrolments", json={"site": "hall", "launch": launch})).json()["secret"]
    body = {"host": "n1", "site": "hall", "slots": 1, "resources": NEEDS, "launch": launch, "nonce": uuid4().hex}
    answer = await server.client(secret).post("/v1/pilots", json=body)
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["pilot"]
    asked = {"resources": NEEDS, "max": 1, "wait": 5}
    claims = await server.client(answer.json()["token"]).post(f"/v1/pilots/{name}/claims", json=asked)
    assert len(claims.json()["claims"]) == 1, claims.text
    return name


async def state(user: httpx.AsyncClient, job: str) -> dict[str, Any]:
    body: dict[str, Any] = (await user.get(f"/v1/jobs/{job}")).json()
    return body


async def test_a_job_whose_pilots_batch_job_ended_is_to_be_had_again_at_once(
    server: RunningServer, tenant: str
) -> None:
    agent, user = server.person("site", tenant=tenant), server.person("operator", tenant=tenant)
    (job,) = await submit(user, {}, resources={"cpus": 1})
    pilot = await pilot_of_launch(server, agent, "l-1")
    end = {"word": "TIMEOUT", "reason": "TimeLimit", "nodes": ["n1"]}
    await tell(agent, "l-1", "ended", end=end)
    found_state = await state(user, job)
    assert (found_state["state"], found_state["releases"], found_state["overlap_possible"]) == ("available", 1, False)
    story = (await user.get(f"/v1/jobs/{job}/story")).text
    assert "batch job b-l-1 of its pilot ended: TIMEOUT (TimeLimit)" in story
    await server.refresh()
    shown = (await user.get("/v1/pilots")).json()["pilots"]
    assert {entry["id"]: entry["state"] for entry in shown}[pilot] == "gone"


async def test_a_job_whose_pilots_node_failed_stays_with_a_pilot_that_may_live(
    server: RunningServer, tenant: str
) -> None:
    agent, user = server.person("site", tenant=tenant), server.person("operator", tenant=tenant)
    (job,) = await submit(user, {}, resources={"cpus": 1})
    await pilot_of_launch(server, agent, "l-1")
    await tell(agent, "l-1", "ended", end={"word": "NODE_FAIL", "nodes": ["n1"], "lost": True})
    assert (await state(user, job))["state"] == "running", "its lease decides"


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it does not"])
async def test_the_batch_job_of_a_silent_pilot_is_cancelled_before_its_job_is_given_to_another(
    server: RunningServer, tenant: str, *, ends: bool
) -> None:
    agent, user = server.person("site", tenant=tenant), server.person("operator", tenant=tenant)
    (job,) = await submit(user, {}, resources={"cpus": 1})
    pilot = await pilot_of_launch(server, agent, "l-1")
    parts = server.services.components
    orphans = ReconcilerComponents(parts).orphans
    orphans.cancel_wait = 30.0
    assert await orphans._asked([pilot]) == {}, "not before the batch system was asked to end it"
    await server.refresh()
    assert (await open_launches(agent))["l-1"]["cancel"] is True
    orphans.fair += 29.0
    assert await orphans._asked([pilot]) == {}
    if ends:
        await tell(agent, "l-1", "ended", end={"word": "CANCELLED", "nodes": ["n1"]})
        assert (await state(user, job))["overlap_possible"] is False
        ((reason, overlap),) = (await orphans._asked([pilot])).values()
        assert (overlap, "CANCELLED" in reason) == (False, True)
    else:
        orphans.fair += 1.0
        ((reason, overlap),) = (await orphans._asked([pilot])).values()
        assert (overlap, "did not end" in reason) == (True, True)
    assert await orphans._asked(["p-nobody"]) == {"p-nobody": ("its pilot fell silent", True)}
