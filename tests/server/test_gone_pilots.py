"""Requests whose caller is gone, and servers that stop, keep no job from those who could run it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.server.asks import read, story, submit_one
from tests.server.running import Domain, RunningServer, until
from tests.server.scripted_pilot import ScriptedPilot


async def test_a_pilot_that_went_away_while_it_waited_gets_nothing(server: RunningServer, tenant: str) -> None:
    gone = await ScriptedPilot.register(server, tenant)
    asking = asyncio.create_task(gone.claim(wait=30))
    await until(lambda: _waiting(server), "the request")
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    await until(lambda: _nobody_waiting(server), "the server to notice", patience=5)
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    alive = await ScriptedPilot.register(server, tenant)
    claim = await alive.claim_one()
    assert (claim["job"], claim["attempt"]) == (job, 1)
    assert [line["event"] for line in await story(ada, job)] == ["create", "claim"]


async def test_a_server_that_stops_lets_waiting_pilots_go(domain: Domain, tenant: str) -> None:
    async with domain.server() as server:
        pilot = await ScriptedPilot.register(server, tenant)
        asking = asyncio.create_task(pilot.claim(wait=30))
        await until(lambda: _waiting(server), "the request")
    assert await asyncio.wait_for(asking, 3) == []


async def test_a_dead_pilots_job_is_released_at_once(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel():
        claim = await pilot.claim_one()
        await pilot.beat(claim["claim"])

    async def released() -> bool:
        return bool((await read(ada, job))["state"] == "available")

    await until(released, "the release", patience=10)
    last = (await story(ada, job))[-1]
    assert (last["event"], last["by"]) == ("release", "server")


async def _waiting(server: RunningServer) -> bool:
    return server.services.claims.waiting == 1


async def _nobody_waiting(server: RunningServer) -> bool:
    return server.services.claims.waiting == 0
