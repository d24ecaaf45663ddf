"""Where jobs go: the data in pilots' caches, those they are to meet, priorities, time left, and several sites."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.apps.server.asks import submit_one
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot

from forestay.services.scheduling.pilot_caches import ticket_for

MB = 10**6


@pytest.fixture
async def server(own_domain: Domain) -> AsyncIterator[RunningServer]:
    """Alone in its domain: it looks after every slot, and no job has to be given by another server."""
    async with own_domain.server() as running:
        yield running


async def told(pilot: ScriptedPilot, **cache: Any) -> int:
    """Tell the server of a cache with a request that asks for nothing it could get."""
    body = {"max": 1, "wait": 0, "resources": {"cpus": 0}, "cache": {"version": 1, "base": 0} | cache}
    answer = await pilot.post("claims", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["claims"] == []
    known: int = answer.json()["cache"]["known"]
    return known


async def queued(server: RunningServer, tenant: str, many: int) -> None:
    """Until a search shows the jobs."""

    async def shown() -> bool:
        person = server.person("viewer", tenant=tenant)
        return len((await person.get("/v1/jobs", params={"state": "available"})).json()["jobs"]) >= many

    await until(shown, "the jobs to be found")


def reading(*files: str) -> dict[str, Any]:
    return {
        "command": ["true"],
        "inputs": [{"name": f"in{place}", "source": f"lfn:{file}"} for place, file in enumerate(files)],
    }


@pytest.mark.ledger("P3-11")
async def test_the_job_with_the_most_bytes_in_the_cache_is_given(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant, host="n1", site="s1")
    assert await told(pilot, added=[["lfn:/big", 700 * MB], ["lfn:/small", MB]]) == 1
    await submit_one(ada, command=["true"])
    small = await submit_one(ada, **reading("/small", "/other"))
    big = await submit_one(ada, **reading("/big", "/other"))
    await queued(server, tenant, 3)
    assert [(await pilot.claim_one())["job"] for _ in range(2)] == [big, small]


async def test_a_report_that_does_not_continue_is_asked_for_again(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant, host="n1")
    assert await told(pilot, version=5, base=4, added=[["lfn:/x", 1]]) == 0
    assert await told(pilot, version=6, base=0, added=[["lfn:/x", 1]]) == 6
    assert await told(pilot, version=7, base=6, removed=["lfn:/x"]) == 7
    assert dict(server.services.caches.holds(pilot.name)) == {}


@pytest.mark.ledger("P3-12")
async def test_a_job_is_held_back_while_an_idle_pilot_elsewhere_has_its_data(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    near = await ScriptedPilot.register(server, tenant, host="near", site="s1")
    far = await ScriptedPilot.register(server, tenant, host="far", site="s1")
    await told(near, added=[["lfn:/x", MB]])
    await told(far)
    # Both wait, the one without the data first.
    asked = [asyncio.create_task(far.claim(wait=5))]
    await _waiting(server, 1)
    asked.append(asyncio.create_task(near.claim(wait=5)))
    await _waiting(server, 2)
    job = await submit_one(ada, **reading("/x"))
    assert [claim["job"] for claim in await asked[1]] == [job]
    # The pilot with the data is busy now: the next job goes to the other one at once.
    later = await submit_one(ada, **reading("/x"))
    assert [claim["job"] for claim in await asked[0]] == [later]


async def _waiting(server: RunningServer, many: int) -> None:
    async def waiting() -> bool:
        return server.services.claims.waiting >= many

    await until(waiting, "pilots that wait")


async def test_producers_and_their_consumer_meet_on_one_host(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilots = {
        host: [await ScriptedPilot.register(server, tenant, host=host, slots=1, site="s1") for _ in range(2)]
        for host in ("h1", "h2")
    }
    for pilot in [*pilots["h1"], *pilots["h2"]]:
        await told(pilot)
    spec = {"command": ["true"], "colocate": {"key": "pair-{pair}", "room": 2, "of": 3}}
    jobs = [await submit_one(ada, {"parameters": {"pair": pair}}, **spec) for pair in (1, 2, 1, 2)]
    await queued(server, tenant, 4)
    got = {}
    for host, place in (("h1", 0), ("h2", 0), ("h1", 1), ("h2", 1)):
        got[(await pilots[host][place].claim_one())["job"]] = host
    assert got[jobs[0]] == got[jobs[2]] != got[jobs[1]] == got[jobs[3]]


@pytest.mark.ledger("P3-18")
async def test_priority_comes_before_data(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant, host="n1")
    await told(pilot, added=[["lfn:/x", MB]])
    near = await submit_one(ada, **reading("/x"))
    urgent = await submit_one(ada, {"priority": 5}, command=["true"])
    await queued(server, tenant, 2)
    assert [(await pilot.claim_one())["job"] for _ in range(2)] == [urgent, near]


@pytest.mark.ledger("P3-20")
async def test_sites_get_the_jobs_whose_data_are_there_and_share_the_rest(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    cern = [await ScriptedPilot.register(server, tenant, host=f"c{n}", site="cern") for n in range(2)]
    ciemat = [await ScriptedPilot.register(server, tenant, host=f"m{n}", site="ciemat") for n in range(2)]
    await told(cern[0], added=[["lfn:/c", MB]])
    await told(ciemat[0], added=[["lfn:/m", MB]])
    for idle in (cern[1], ciemat[1]):
        await told(idle)
    there = {"c": await submit_one(ada, **reading("/c")), "m": await submit_one(ada, **reading("/m"))}
    plain = {await submit_one(ada, command=["true"]) for _ in range(2)}
    await queued(server, tenant, 4)
    # The first to ask have no data: each still gets something, and nobody gets what another site has.
    assert (await ciemat[1].claim_one())["job"] in plain | {there["m"]}
    assert (await cern[1].claim_one())["job"] in plain | {there["c"]}
    rest = {(await ciemat[0].claim_one())["job"], (await cern[0].claim_one())["job"]}
    assert rest & set(there.values())
    assert there["c"] not in {record["job"] for record in await ciemat[0].claim(wait=0)}


async def test_a_peer_of_the_site_is_named_with_a_ticket(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    secret = "ab" * 16
    has = await ScriptedPilot.register(server, tenant, host="h1", site="s1")
    wants = await ScriptedPilot.register(server, tenant, host="h2", site="s1")
    elsewhere = await ScriptedPilot.register(server, tenant, host="h3", site="s2")
    share = {"url": "http://10.0.0.5:4711", "secret": secret}
    await told(has, added=[["https://data.example/x", MB]], share=share)
    for pilot in (wants, elsewhere):
        await told(pilot)
    (source,) = server.services.caches.peers_for("https://data.example/x", wants.name)
    expiry = int(str(source["ticket"]).partition(".")[0])
    assert source == {
        "kind": "peer",
        "url": share["url"],
        "host": "h1",
        "ticket": ticket_for(secret, "https://data.example/x", expiry),
    }
    assert server.services.caches.peers_for("https://data.example/x", elsewhere.name) == []
    assert server.services.caches.peers_for("https://data.example/x", has.name) == []
    assert secret not in repr(server.services.caches)
    assert ada is not None


@pytest.mark.ledger("P3-19")
async def test_no_job_is_given_that_cannot_end_in_the_time_left(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    pilot = await ScriptedPilot.register(server, tenant, host="n1")
    await told(pilot, added=[["lfn:/x", MB]])
    long = await submit_one(ada, {"resources": {"cpus": 1, "wall": 3600}}, **reading("/x"))
    short = await submit_one(ada, {"resources": {"cpus": 1, "wall": 60}}, command=["true"])
    await queued(server, tenant, 2)
    assert [record["job"] for record in await pilot.claim(most=2, time_left=600, resources=PLENTY)] == [short]
    assert (await pilot.claim_one(time_left=7200))["job"] == long
