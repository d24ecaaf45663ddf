"""Requests whose caller is gone, and servers that stop, keep no job from those who could run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import read, story, submit_one
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.ports.jobs.job_store import Stored
from forestay.services.jobs.claim_releaser import ClaimReleaser


async def test_a_pilot_that_went_away_while_it_waited_gets_nothing(server: RunningServer, tenant: str) -> None:
    gone = await ScriptedPilot.register(server, tenant)
    asking = asyncio.create_task(gone.claim(wait=30))
    await until(lambda: _waiting(server), "the request")
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    await until(lambda: _nobody_waiting(server), "the server to notice")
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
        await pilot.heartbeat(claim["claim"])
    await until(lambda: _available(ada, job), "the release")
    last = (await story(ada, job))[-1]
    assert (last["event"], last["by"]) == ("release", "server")


@dataclass(slots=True)
class SlowSearch(ClaimReleaser):
    """Something happens before the search for a dead pilot's jobs comes to its answer."""

    pilot: str = ""
    meanwhile: Callable[[], Awaitable[None]] | None = None
    happened: bool = False
    dealt_with: bool = False
    """What the search brought has been dealt with."""

    async def held_by(self, pilots: Sequence[str]) -> list[Stored]:
        if self.meanwhile is not None and self.pilot in pilots:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
            self.happened = True
        return await ClaimReleaser.held_by(self, pilots)

    async def release(self, jobs: Sequence[Stored], **how: Any) -> int:
        after = self.happened
        count = await ClaimReleaser.release(self, jobs, **how)
        self.dealt_with |= after
        return count


async def test_a_pilot_that_comes_back_elsewhere_keeps_what_it_claims_there(
    server: RunningServer, other: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant)
    jobs: list[str] = []

    async def come_back() -> None:
        await channels.enter_async_context(pilot.channel(other))
        jobs.append(await submit_one(ada))
        assert (await pilot.claim_one(server=other))["job"] == jobs[0]

    release = server.services.channels.release
    slow = SlowSearch(
        release.store, release.pilots, release.writer, release.clock, pilot=pilot.name, meanwhile=come_back
    )
    monkeypatch.setattr(server.services.channels, "release", slow)
    async with AsyncExitStack() as channels:
        async with pilot.channel(server):
            pass
        await until(lambda: _dealt_with(slow), "the server to look for what the pilot held")
        assert (await read(ada, jobs[0]))["state"] == "running"


async def _dealt_with(release: SlowSearch) -> bool:
    return release.dealt_with


async def _available(client: httpx.AsyncClient, job: str) -> bool:
    return bool((await read(client, job))["state"] == "available")


async def _waiting(server: RunningServer) -> bool:
    return server.services.claims.waiting == 1


async def _nobody_waiting(server: RunningServer) -> bool:
    return server.services.claims.waiting == 0


async def test_the_heir_of_a_dead_pilot_delivers_its_end_once_the_claim_is_free(
    server: RunningServer, tenant: str
) -> None:
    """The work is done: it must not be thrown away because nobody has noticed the death yet."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    dead = await ScriptedPilot.register(server, tenant)
    heir = await ScriptedPilot.register(server, tenant)
    async with dead.channel():
        claim = await dead.claim_one()
        assert await heir.end(claim) == ["unknown"]
        assert (await read(ada, job))["state"] == "running"
    await until(lambda: _available(ada, job), "the release")
    assert await heir.end(claim) == ["committed"]
    assert [line["event"] for line in await story(ada, job)] == ["create", "claim", "release", "adopt"]
