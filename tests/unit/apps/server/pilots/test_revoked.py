"""One pilot's right is taken away: at once, at every server, and for good; and no stream outlives the token that opened it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.speed import clock_limit
from tests.unit.apps.server.asks import problem, read, submit_one
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of


async def test_a_revoked_pilot_is_refused_at_every_server_and_its_jobs_are_left_to_its_lease(
    local: RunningServer, tenant: str
) -> None:
    operator = local.person("operator", tenant=tenant, subject="olga")
    job = await submit_one(operator)
    pilot = await ScriptedPilot.register(local, tenant)
    honest = await ScriptedPilot.register(local, tenant)
    claim = await pilot.claim_one()
    await pilot.heartbeat(claim["claim"])
    async with local.domain.server() as other:
        assert (await pilot.post("heartbeat", {"counter": 50, "claims": [claim["claim"]]}, other)).status_code == 200
        path, why = f"/v1/pilots/{pilot.name}/revoke", {"reason": "its token was seen elsewhere"}
        problem(await local.person("submitter", tenant=tenant).post(path, json=why), 403)
        problem(await local.person("operator", tenant=f"{tenant}-eve").post(path, json=why), 404)
        problem(await operator.post("/v1/pilots/p-nobody/revoke", json=why), 404)
        problem(await operator.post(path, json={}), 422)
        async with pilot.channel() as orders:
            deaths = local.services.channels.deaths
            assert (await operator.post(path, json=why)).status_code == 200
            await orders.wait_for_end()
        asked: dict[str, dict[str, Any]] = {
            "heartbeat": {"counter": 99, "claims": [claim["claim"]]},
            "claims": {},
            "completions": {"completions": [end_of(claim)]},
            "token": {},
            "log": {"claim": claim["claim"], "offset": 0, "text": "x", "last": False},
        }
        for what, body in asked.items():
            problem(await pilot.post(what, body), 403)

        async def heard() -> bool:
            answer = await pilot.post("heartbeat", {"counter": 100, "claims": [claim["claim"]]}, other)
            return answer.status_code == 403

        await until(heard, "the other server to hear of it")
        problem(await pilot.post("claims", {}, other), 403)
        # One that has just come, and one that was away, know it by the pilot's own document.
        async with local.domain.server() as fresh:
            problem(await pilot.post("claims", {}, fresh), 403)
            problem(await pilot.post("token", {}, fresh), 403)
        assert (await honest.post("heartbeat", {"counter": 1}, other)).status_code == 200
    # What it runs may run on: nothing says that it is dead, so its lease decides.
    assert (await read(operator, job))["state"] == "running"
    assert local.services.channels.deaths == deaths
    shown = {pilot["id"]: pilot for pilot in (await operator.get("/v1/pilots")).json()["pilots"]}
    assert shown[pilot.name]["revoked"] == "olga: its token was seen elsewhere"
    assert "revoked" not in shown[honest.name]
    audit = (await local.person("administrator", tenant=tenant).get("/v1/audit")).text
    assert "revoke" in audit
    assert pilot.name in audit


async def test_a_pilot_that_is_revoked_while_it_waits_gets_nothing(local: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(local, tenant)
    operator = local.person("operator", tenant=tenant)
    waiting = asyncio.create_task(pilot.post("claims", {"wait": 20}))

    async def waits() -> bool:
        return local.services.claims.waiting > 0

    await until(waits, "the pilot to wait for work")
    assert (await operator.post(f"/v1/pilots/{pilot.name}/revoke", json={"reason": "r"})).status_code == 200
    job = await submit_one(operator)
    problem(await waiting, 403)
    heir = await ScriptedPilot.register(local, tenant)
    assert (await heir.claim_one())["job"] == job


async def test_a_stream_ends_with_its_token(local: RunningServer, tenant: str) -> None:
    short = local.client(local.domain.token("viewer", tenant=tenant, seconds=3))
    lasting = local.person("viewer", tenant=tenant)
    began = time.monotonic()
    async with read_events(short, "/v1/events") as seen, read_events(lasting, "/v1/events") as others:
        await seen.wait_for_end()
        assert time.monotonic() - began < clock_limit(30)
        assert not others.ended
        job = await submit_one(local.person("submitter", tenant=tenant))
        await others.wait_for("job", lambda data: data["job"]["id"] == job)
        assert not seen.named("job"), "what came later is not told"
    problem(await short.get("/v1/events"), 401)
