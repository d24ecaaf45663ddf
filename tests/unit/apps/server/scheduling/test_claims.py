"""Claims: at once when there is work, each job to one pilot, and given back when nobody takes them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.speed import clock_limit
from tests.unit.apps.server.asks import problem, read, story, submit, submit_one
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.line import line_to_store
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot
from tests.unit.apps.server.store_room import far

from forestay.domain.jobs.resources import Resources

pytestmark = pytest.mark.every_store

REFRESH = 1.0
"""Seconds after which a search shows what was written."""


async def _asked(server: RunningServer, many: int = 1) -> None:
    async def waiting() -> bool:
        return server.services.claims.waiting >= many

    await until(waiting, "a pilot that waits for work")


async def test_a_claim_says_all_that_a_pilot_needs(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    spec: dict[str, Any] = {
        "command": ["echo", "{x}"],
        "environment": {"A": "b"},
        "outputs": ["*.txt"],
        "effects": "external",
    }
    job = await submit_one(ada, {"parameters": {"x": 1}, "index": 7, "resources": {"cpus": 2, "wall": 60}}, **spec)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    assert (claim["job"], claim["generation"], claim["attempt"], claim["tenant"]) == (job, 0, 1, tenant)
    assert (claim["parameters"], claim["index"]) == ({"x": 1}, 7)
    assert (claim["resources"]["cpus"], claim["resources"]["wall"]) == (2, 60)
    for name, value in spec.items():
        assert claim["specification"][name] == value
    shown = await read(ada, job)
    assert (shown["state"], shown["phase"], shown["attempt"]) == ("running", "executing", 1)
    assert (shown["claim"]["id"], shown["claim"]["pilot"], shown["claim"]["host"]) == (
        claim["claim"],
        pilot.name,
        "node1",
    )


async def test_a_job_for_which_a_pilot_waits_comes_to_be_claimed(own_domain: Domain, tenant: str) -> None:
    """One write, and for whoever looks it was queued and then claimed. The watchers of jobs hear of both at once."""
    async with own_domain.server() as server:
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant)
        asking = asyncio.create_task(pilot.claim_one(wait=30))

        async def looked() -> bool:
            return server.services.claims.buffers.has_none_for(tenant, Resources(cpus=1))

        await _asked(server)
        await until(looked, "the server to know that nothing is queued")
        before = server.services.components.writer.tally.written
        job = await submit_one(ada, command=["echo", "a specification of its own"])
        claim = await asking
        assert (claim["job"], claim["attempt"]) == (job, 1)
        assert claim["specification"]["command"] == ["echo", "a specification of its own"]
        assert server.services.claims.tally.first == 1
        assert server.services.components.writer.tally.written == before, "no write but the creating one"
        assert [line["event"] for line in await story(ada, job)] == ["create", "claim"]
        await pilot.end(claim)
        assert (await read(ada, job))["state"] == "completed"


async def test_a_waiting_pilot_gets_a_new_job_at_once(own_domain: Domain, tenant: str) -> None:
    """No search is on the way from the submission to the pilot: the store's refresh is never waited for."""
    async with own_domain.server() as server:
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant)
        waits: list[float] = []
        for _ in range(5):
            asking = asyncio.create_task(pilot.claim_one(wait=20))
            await _asked(server)
            job = await submit_one(ada)
            since = time.monotonic()
            claim = await asking
            waits.append(time.monotonic() - since)
            assert claim["job"] == job
            await pilot.end(claim)
        assert sorted(waits)[2] < REFRESH / 2, waits


async def test_a_waiting_pilot_gets_at_once_what_falls_to_another_server(own_domain: Domain, tenant: str) -> None:
    """With several servers a job may belong to another one's slots; the pilot that waits here gets it all the same."""
    async with own_domain.server() as server, own_domain.server() as second:

        async def shared() -> bool:
            return all(len(running_server.services.heartbeats.alive) == 2 for running_server in (server, second))

        await until(shared, "both servers to see each other")
        ada = server.person("submitter", tenant=tenant)
        pilot = await ScriptedPilot.register(server, tenant)
        waits: list[float] = []
        for _ in range(12):
            asking = asyncio.create_task(pilot.claim_one(wait=20))
            await _asked(server)
            await submit_one(ada)
            since = time.monotonic()
            claim = await asking
            waits.append(time.monotonic() - since)
            await pilot.end(claim)
        assert sorted(waits)[9] < REFRESH / 2, waits


async def test_a_claim_without_waiting_gives_what_is_there(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant)
    assert await pilot.claim(wait=0) == []
    await submit(ada, *[{}] * 3)
    await server.refresh()

    async def given() -> list[dict[str, Any]]:
        return await pilot.claim(wait=0, most=3)

    assert await until(given, "a claim that does not wait")


async def test_a_pilot_that_asks_briefly_gets_what_falls_to_another_server(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    """Nobody asks at the other server; its share of the jobs is not left lying."""
    jobs = await submit(server.person("submitter", tenant=tenant), *[{}] * 12)
    pilot = await ScriptedPilot.register(server, tenant)
    got: list[str] = []

    async def all_got() -> bool:
        got.extend(claim["job"] for claim in await pilot.claim(most=32, wait=0.1))
        return len(got) == len(jobs)

    await until(all_got, "the share of the other server")
    assert sorted(got) == sorted(jobs)


async def test_a_pilot_gets_only_what_fits(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    large, gpu, long = await submit(
        ada,
        {"resources": {"cpus": 8, "memory": 1 << 33}},
        {"resources": {"gpus": 1}},
        {"resources": {"wall": 7200}},
    )
    await server.refresh()
    pilot = await ScriptedPilot.register(server, tenant)
    small = {"cpus": 4, "memory": 1 << 32, "disk": 0, "gpus": 0}
    assert await pilot.claim(resources=small, time_left=3600, wait=2) == []
    assert (await pilot.claim_one(resources=small, time_left=7300))["job"] == long
    assert (await pilot.claim_one(resources=small | {"gpus": 1}, time_left=400))["job"] == gpu
    assert (await pilot.claim_one(resources=PLENTY))["job"] == large


@pytest.mark.ledger("P3-19")
async def test_no_job_is_given_that_cannot_end_in_the_time_left(server: RunningServer, tenant: str) -> None:
    """By its limit, else by how long it is expected to run, else by the default policy's guess; also at the end of the wait."""
    ada = server.person("submitter", tenant=tenant)
    limited, expected, silent = await submit(ada, {"resources": {"wall": 900}}, {"expected_runtime": 600}, {})
    await server.refresh()
    pilot = await ScriptedPilot.register(server, tenant)
    assert await pilot.claim(most=3, time_left=300, wait=1) == []
    assert (await pilot.claim_one(most=3, time_left=311))["job"] == silent
    assert (await pilot.claim_one(most=3, time_left=611))["job"] == expected
    assert await pilot.claim(most=3, time_left=905, wait=6) == []
    assert (await pilot.claim_one(most=3, time_left=911))["job"] == limited


@pytest.mark.ledger("P3-19")
async def test_a_job_that_was_stopped_with_its_pilot_needs_more_time_than_it_had(
    server: RunningServer, tenant: str
) -> None:
    job = await submit_one(server.person("submitter", tenant=tenant))
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one(time_left=1000)
    assert await pilot.end(claim, outcome="failure", reason="pilot-stopped", signal=15, wall=900.5) == ["committed"]
    assert await pilot.claim(time_left=900, wait=1) == []
    assert (await pilot.claim_one(time_left=912))["job"] == job


async def test_what_is_claimed_together_fits_together(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server() as server:  # alone, so that it has all five in one window
        ada = server.person("submitter", tenant=tenant)
        await submit(ada, *[{"resources": {"cpus": 3}}] * 5)
        await server.refresh()
        pilot = await ScriptedPilot.register(server, tenant)
        assert len(await pilot.claim(most=32, resources={"cpus": 7})) == 2


async def test_higher_priority_goes_first(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server() as server:
        ada = server.person("submitter", tenant=tenant)
        await submit(ada, *({"priority": priority} for priority in (0, 5, -3, 1000, -1000, 5)))
        await server.refresh()
        pilot = await ScriptedPilot.register(server, tenant)
        got: list[int] = []
        while len(got) < 6:
            for claim in await pilot.claim(most=1):
                got.append((await read(ada, claim["job"]))["priority"])
                await pilot.end(claim)
        assert got == [1000, 5, 5, 0, -3, -1000]


async def test_an_urgent_job_overtakes_a_long_queue(own_domain: Domain, tenant: str) -> None:
    """The servers have read far ahead into the queue; a job that comes later and is more urgent is not left behind."""
    async with own_domain.server() as first, own_domain.server() as second:
        for server in (first, second):
            buffers = server.services.claims.buffers
            buffers.settings = replace(buffers.settings, look_again=2.0)
        ada = first.person("submitter", tenant=tenant)
        await submit(ada, *[{}] * 3000)
        await first.refresh()
        pilots = [await ScriptedPilot.register(server, tenant) for server in (first, second)]
        for pilot in pilots * 3:
            assert await pilot.claim(most=4)
        urgent = await submit_one(ada, {"priority": 900})

        async def overtaken() -> bool:
            results = await asyncio.gather(*(pilot.claim(most=1) for pilot in pilots))
            return urgent in [claim["job"] for claims in results for claim in claims]

        since = time.monotonic()
        await until(overtaken, "the urgent job")
        assert time.monotonic() - since < clock_limit(10)


async def test_owners_take_turns(own_domain: Domain, tenant: str) -> None:
    async with own_domain.server() as server:
        await submit(server.person("submitter", tenant=tenant, subject="ada"), *[{}] * 30)
        await submit(server.person("submitter", tenant=tenant, subject="bob"), *[{}] * 30)
        await server.refresh()
        pilot = await ScriptedPilot.register(server, tenant)
        operator = server.person("operator", tenant=tenant)
        owners: Counter[str] = Counter()
        while owners.total() < 20:
            for claim in await pilot.claim(most=1):
                owners[(await read(operator, claim["job"]))["owner"]] += 1
        assert min(owners["ada"], owners["bob"]) >= 8


async def test_two_servers_share_the_slots_and_each_job_goes_to_one_pilot(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    async def shared() -> bool:
        status = [
            (await running_server.person("viewer", tenant=tenant).get("/v1/status")).json()
            for running_server in (server, other)
        ]
        slots = [sum(entry["slots"] for entry in entry["servers"]) for entry in status]
        return all(len(entry["servers"]) == 2 for entry in status) and slots == [1024, 1024]

    await until(shared, "both servers to share the slots")
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, *[{}] * 200)
    pilots = [await ScriptedPilot.register((server, other)[place % 2], tenant) for place in range(8)]
    claims: list[dict[str, Any]] = []

    async def work(pilot: ScriptedPilot) -> None:
        while len(claims) < len(jobs):
            claim = await pilot.claim(most=8, wait=1)
            claims.extend(claim)
            if claim:
                assert set(await pilot.end(*claim)) == {"committed"}

    await asyncio.gather(*(work(pilot) for pilot in pilots))
    assert Counter(claim["job"] for claim in claims) == Counter(jobs)
    assert {claim["attempt"] for claim in claims} == {1}
    for running_server in (server, other):
        assert running_server.services.claims.tally.granted > 20


async def test_claims_go_back_when_the_asking_client_is_gone(server: RunningServer, tenant: str) -> None:
    """A request that nobody waits for any more holds no job."""
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant)
    body = {"max": 1, "wait": 20, "resources": PLENTY}
    before = server.services.claims.waiting
    async with http_client(server.url, pilot.token) as client:
        asking = asyncio.create_task(client.post(f"/v1/pilots/{pilot.name}/claims", json=body, timeout=60))
        await _asked(server, before + 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def gone() -> bool:
        return server.services.claims.waiting <= before

    await until(gone, "the server to notice")
    job = await submit_one(ada)
    await asyncio.sleep(0.2)
    assert (await read(ada, job))["attempt"] == 0
    successor = await ScriptedPilot.register(server, tenant)
    assert (await successor.claim_one())["job"] == job


async def test_clients_that_vanish_at_any_moment_leave_no_job_behind(server: RunningServer, tenant: str) -> None:
    """Some vanish before, some while, some after their claims are written; every job is to be had again at once,
    or by the next two heartbeats of a pilot that does not know of it."""
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, *[{}] * 40)
    await server.refresh()
    vanishing = await ScriptedPilot.register(server, tenant)
    known: list[dict[str, Any]] = []
    for place in range(20):
        async with http_client(server.url, vanishing.token) as client:
            body = {"max": 2, "wait": 5, "resources": PLENTY}
            asking = asyncio.create_task(client.post(f"/v1/pilots/{vanishing.name}/claims", json=body))
            await asyncio.sleep(place * 0.002)
            asking.cancel()
            (answer,) = await asyncio.gather(asking, return_exceptions=True)
            if isinstance(answer, httpx.Response):
                known += answer.json()["claims"]
    for claim in known:
        assert await vanishing.end(claim) == ["committed"]
    await server.refresh()
    worker = await ScriptedPilot.register(server, tenant)
    async with server.domain.reconciler() as reconciler:
        reconciler.orphans.sweep = 0.0
        done = {claim["job"] for claim in known}

        async def all_done() -> bool:
            for claim in await worker.claim(most=32, wait=0.5):
                assert await worker.end(claim) == ["committed"]
                assert claim["job"] not in done, "claimed twice"
                done.add(claim["job"])
            await vanishing.heartbeat()
            await server.refresh()
            await reconciler.orphans.scan()
            return len(done) == len(jobs)

        await until(all_done, "every job")


async def test_a_stopping_server_sends_waiting_pilots_away_at_once(domain: Domain, tenant: str) -> None:
    async with domain.server() as server:
        pilot = await ScriptedPilot.register(server, tenant)
        asking = asyncio.create_task(pilot.claim(wait=25))
        await _asked(server)
        since = time.monotonic()
        await server.stop()
        assert await asking == []
        assert time.monotonic() - since < clock_limit(4)


async def test_a_heartbeat_is_answered_when_it_is_stored(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    for counter in range(1, 4):
        await pilot.heartbeat("c1")
        heartbeat_pages = await other.services.components.pilots.heartbeat_pages(fresh=True)
        stored = [
            heartbeat_page.heartbeats[pilot.name]
            for heartbeat_page in heartbeat_pages
            if pilot.name in heartbeat_page.heartbeats
        ]
        assert [(heartbeat.counter, heartbeat.claims) for heartbeat in stored] == [(counter, ("c1",))]
    # An older heartbeat that comes late takes nothing back.
    pilot.counter = 0
    await pilot.heartbeat("old")
    heartbeat_pages = await other.services.components.pilots.heartbeat_pages(fresh=True)
    assert [
        heartbeat_page.heartbeats[pilot.name].counter
        for heartbeat_page in heartbeat_pages
        if pilot.name in heartbeat_page.heartbeats
    ] == [3]


@far
async def test_a_heartbeat_that_cannot_be_stored_is_not_acknowledged(domain: Domain, tenant: str) -> None:
    async with line_to_store(domain) as (reached, line), reached.server() as server:
        pilot = await ScriptedPilot.register(server, tenant)
        await pilot.heartbeat()
        line.cut()
        answer = await pilot.post("heartbeat", {"counter": 2, "session": 0, "claims": []})
        problem(answer, 503)
        line.recover()

        async def stored() -> bool:
            return (await pilot.post("heartbeat", {"counter": 2, "session": 0, "claims": []})).status_code == 200

        await until(stored, "the heartbeat to be stored")


async def test_a_pilots_token_is_renewed_by_its_heartbeats(domain: Domain, tenant: str) -> None:
    async with domain.server(token_seconds=6) as server:
        pilot = await ScriptedPilot.register(server, tenant)
        assert (await pilot.heartbeat())["token"] is None

        async def renewed() -> str | None:
            token: str | None = (await pilot.heartbeat())["token"]
            return token

        first = pilot.token
        pilot.token = await until(renewed, "a new token")
        assert pilot.token != first
        await pilot.heartbeat()


async def test_a_pilot_that_says_goodbye_gives_its_claims_back(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel():
        await pilot.claim_one()
        await pilot.bye()
        assert (await read(ada, job))["state"] == "available"
        assert (await story(ada, job))[-1]["words"].endswith("its pilot deregistered.")
    await server.refresh()
    pilots = (await ada.get("/v1/pilots", params={"state": "gone"})).json()["pilots"]
    assert [(other_pilot["id"], other_pilot["note"]) for other_pilot in pilots] == [(pilot.name, "it deregistered")]


async def test_two_channels_of_one_pilot_are_one_life(server: RunningServer, tenant: str) -> None:
    """A pilot opens a new channel before it closes the old one; nothing is released for that."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel():
        claim = await pilot.claim_one()
        newer = pilot.channel()
        await newer.__aenter__()
    await asyncio.sleep(1.0)
    assert (await read(ada, job))["state"] == "running"
    assert await pilot.end(claim) == ["committed"]
    await newer.__aexit__(None, None, None)
