"""Paper P4, sections 2.2 and 4: several servers, no duplicates, quick recovery, and the cost of a job as servers are added.

Servers, reconcilers and pilots are processes here, and are killed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.speed import clock_limit
from tests.unit.apps.server.asks import read, steer, story, submit, submit_one
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.processes import Started, processes
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot, end_of
from tests.unit.apps.server.store_room import far, only

from forestay.domain.jobs.hash_slots import SLOTS

pytestmark = pytest.mark.pair


async def _done(client: httpx.AsyncClient, many: int) -> bool:
    answer = await client.get("/v1/jobs/counts")
    return bool(answer.json()["counts"] == {"completed": many})


@only("opensearch")
@pytest.mark.ledger("P4-08")
async def test_no_server_is_needed_more_than_another(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section 2.2: the service runs on several nodes; kill -9 of one in the middle of the work loses nothing.

    Real pilots, that know all three servers, write a line for each run; every job was begun, ended well, and has
    exactly one attempt that counts. A claim whose answer died with the server is taken back by the reconciler, since its pilot
    does not name it.
    """
    lines = tmp_path / "runs"
    many = 60
    async with processes(own_domain, tmp_path, lease=12) as scenario:
        first, second, third = await scenario.servers(3)
        scenario.reconciler()
        client = scenario.client(second, "submitter", tenant=tenant)
        for place in range(2):
            order = [first, second, third] if place == 0 else [third, first, second]
            scenario.pilot(tenant, *order, slots=2, batch="4")
        command = ["sh", "-c", f"sleep 0.05; echo {{index}} >> {lines}"]
        jobs = await submit(client, *({"index": place} for place in range(many)), command=command)

        async def begun() -> bool:
            return lines.exists() and len(lines.read_text().split()) >= 10

        await until(begun, "the work to begin")
        first.kill()
        await until(lambda: _done(client, many), "every job")
        runs = Counter(int(number) for number in lines.read_text().split())
        assert set(runs) == set(range(many)), "nothing is lost"
        for place, job in enumerate(jobs):
            shown = await read(client, job)
            assert shown["winner"]["attempt"] == shown["attempt"]
            claims = [line for line in await story(client, job) if line["event"] == "claim"]
            assert len(claims) == shown["attempt"] >= runs[place], "every attempt is recorded"


@only("postgresql")
@pytest.mark.ledger("P4-12")
async def test_a_killed_pilots_job_runs_again_within_seconds(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section 4.2: five minutes on average there, from the crash until the work goes on. Here a pilot's death is known
    when the channel it held closes."""
    async with processes(own_domain, tmp_path, lease=600) as scenario:
        (server,) = await scenario.servers(1)
        client = scenario.client(server, "submitter", tenant=tenant)
        victim = scenario.pilot(tenant, server)
        job = await submit_one(client, command=["sleep", "600"])

        async def state(wanted: str) -> bool:
            return bool((await read(client, job))["state"] == wanted)

        await until(lambda: state("running"), "the job to run")
        victim.kill()
        since = time.monotonic()
        await until(lambda: state("available"), "the job to be free again")
        # A server that was itself held up doubts for ten seconds what it sees.
        assert time.monotonic() - since < clock_limit(20), "seconds, not minutes"
        line = (await story(client, job))[-1]
        assert (line["event"], line["words"]) == (
            "release", "server released the claim of attempt 1: its pilot died: its channel closed.",
        )  # fmt: skip


@only("postgresql")
@pytest.mark.ledger("P4-12")
async def test_work_goes_on_within_seconds_of_a_servers_crash(own_domain: Domain, tenant: str, tmp_path: Path) -> None:
    """Section 4.2, the other half: a server dies by kill -9. Its pilot's running job is not begun again, the pilot goes to
    the other server, and the next job is done there."""
    async with processes(own_domain, tmp_path, lease=60) as scenario:
        first, second = await scenario.servers(2)
        client = scenario.client(second, "submitter", tenant=tenant)
        scenario.pilot(tenant, first, second, slots=2)
        begun = tmp_path / "begun"
        long = await submit_one(client, command=["sh", "-c", f"touch {begun}; exec sleep 8"])

        async def state(job: str, wanted: str) -> bool:
            return bool((await read(client, job))["state"] == wanted)

        async def runs() -> bool:
            return begun.exists()

        # It is running for the servers before the pilot has heard so, and a claim that goes down with its server is another matter.
        await until(runs, "the long job to run")
        first.kill()
        since = time.monotonic()
        short = await submit_one(client)
        await until(lambda: state(short, "completed"), "the next job")
        assert time.monotonic() - since < clock_limit(20), "seconds, not minutes"
        await until(lambda: state(long, "completed"), "the long job to end")
        assert (await read(client, long))["attempt"] == 1, "it was not begun again"


@far
@pytest.mark.ledger("P4-11")
async def test_no_job_takes_effect_twice_and_every_extra_attempt_is_recorded(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    """Section 4.1: 0.001 % of the jobs ran twice there. Deliberate difference: Forestay does not count runs but effects.
    Of all the ends that pilots bring for a job exactly one is committed, and each run is in its story.

    1,000 jobs at two servers; pilots vanish with their claims, answers are lost, ends are sent twice and by both the lost
    holder and its successor, and jobs are released by hand while they run.
    """
    chance = random.Random(4)
    many = 1000
    operator = server.person("operator", tenant=tenant)
    jobs = await submit(operator, *[{}] * many)
    runs: Counter[str] = Counter()
    effects: Counter[str] = Counter()
    late: list[tuple[ScriptedPilot, dict[str, Any]]] = []

    async def bring(pilot: ScriptedPilot, claims: list[dict[str, Any]], where: RunningServer) -> None:
        answer = await pilot.post("completions", {"completions": [end_of(claim) for claim in claims]}, where)
        for claim, result in zip(claims, answer.json()["results"], strict=True):
            if result["result"] == "committed":
                effects[claim["job"]] += 1

    async def work(number: int) -> None:
        home = (server, other)[number % 2]
        pilot = await ScriptedPilot.register(home, tenant)
        while len(effects) < many:
            claims = await pilot.claim(most=16, wait=2)
            runs.update(claim["job"] for claim in claims)
            if not claims:
                continue
            failure = chance.random()
            if failure < 0.10:  # it vanishes with its claims, and says so only by its channel
                async with pilot.channel():
                    pass
                late.extend((pilot, claim) for claim in claims)
                pilot = await ScriptedPilot.register(home, tenant)
            elif failure < 0.20:  # someone releases a job that runs; both holders bring an end
                claim = claims[0]
                seen = {"expected_attempt": claim["attempt"], "expected_claim": claim["claim"], "reason": "a mistake"}
                await steer(operator, claim["job"], "release", **seen)
                await bring(pilot, claims[1:], home) if claims[1:] else None
                late.append((pilot, claim))
            elif failure < 0.30:  # the answer is lost: the same ends again, at the other server; counted once
                await pilot.post("completions", {"completions": [end_of(claim) for claim in claims]}, home)
                await bring(pilot, claims, (other, server)[number % 2])
            else:
                await bring(pilot, claims, home)
            if late and chance.random() < 0.3:
                holder, lost = late.pop(chance.randrange(len(late)))
                await bring(holder, [lost], (server, other)[chance.randrange(2)])

    async def let_suspects_through() -> None:
        """A person knows that these jobs do not kill their pilots."""
        while True:
            held = (await operator.get("/v1/jobs", params={"state": "faulted"})).json()["jobs"]
            for job in held:
                await steer(operator, job["id"], "retry", reason="its pilots vanished by chance")
            await asyncio.sleep(0.5)

    person = asyncio.create_task(let_suspects_through())
    await asyncio.wait_for(asyncio.gather(*(work(number) for number in range(6))), 240)
    person.cancel()
    for holder, lost in late:
        await bring(holder, [lost], server)
    assert set(effects) == set(jobs), "none is lost"
    assert max(effects.values()) == 1, "none takes effect twice"
    extra = [job for job in jobs if runs[job] > 1]
    assert extra, "the failures made some run again"
    for job in extra:
        shown = await read(operator, job)
        assert shown["state"] == "completed"
        claims = [line for line in await story(operator, job) if line["event"] == "claim"]
        assert len(claims) == shown["attempt"] >= runs[job], "an extra attempt is not recorded"


@asynccontextmanager
async def _measured(servers: list[Started]) -> AsyncIterator[list[float]]:
    """The processor seconds that the servers spend in the block, beyond what they spend idle."""
    idle_from, idle_cpu = time.monotonic(), sum(server.cpu for server in servers)
    await asyncio.sleep(2)
    rate = (sum(server.cpu for server in servers) - idle_cpu) / (time.monotonic() - idle_from)
    since, before = time.monotonic(), sum(server.cpu for server in servers)
    spent: list[float] = []
    yield spent
    spent.append(sum(server.cpu for server in servers) - before - rate * (time.monotonic() - since))


async def _cost_of_a_job(domain: Domain, folder: Path, tenant: str, many_servers: int) -> float:
    """Processor seconds of the servers for each job that is submitted, claimed and ended; the load grows with them."""
    many = 800 * many_servers
    async with processes(domain, folder, lease=60) as scenario:
        servers = await scenario.servers(many_servers)
        clients = [scenario.client(server, "submitter", "enrol", tenant=tenant) for server in servers]
        statuses = [scenario.client(server, "viewer", tenant=tenant) for server in servers]

        async def shared() -> bool:
            known = [(await client.get("/v1/status")).json() for client in statuses]
            return all(len(entry["servers"]) == many_servers for entry in known) and (
                sum(entry["slots_served"] for entry in known) == SLOTS
            )

        await until(shared, "every server to see the others and to serve its share")
        pilots: list[tuple[httpx.AsyncClient, str]] = []
        for client in clients * 4:
            known = (await client.post("/v1/pilots", json={"host": "node", "resources": PLENTY})).json()
            pilots.append((http_client(str(client.base_url), known["token"]), f"/v1/pilots/{known['pilot']}"))
        ended = 0

        async def work(client: httpx.AsyncClient, path: str) -> None:
            nonlocal ended
            while ended < many:
                body = {"max": 16, "wait": 1, "resources": PLENTY}
                claims = (await client.post(f"{path}/claims", json=body)).json()["claims"]
                if claims:
                    ends = {"completions": [end_of(claim) for claim in claims]}
                    results = (await client.post(f"{path}/completions", json=ends)).json()["results"]
                    assert {result["result"] for result in results} == {"committed"}
                    ended += len(claims)

        async with _measured(servers) as spent:
            for client in clients:
                await submit(client, *[{}] * 800)
            await asyncio.gather(*(work(*pilot) for pilot in pilots))
        for client, _ in pilots:
            await client.aclose()
    assert ended == many
    return spent[0] / many


@only("postgresql")
@pytest.mark.measured
@pytest.mark.ledger("P4-13")
async def test_a_job_costs_as_much_with_four_servers_as_with_one(
    own_domain: Domain, tenant: str, tmp_path: Path
) -> None:
    """Section 4.3: linear scaling by adding nodes. On one machine that is: the processor seconds for a job stay
    constant from one to four servers. A small version, with room for a noisy machine; `just bench scale` has the figure.

    Where four processes share two processors with other machines, the same work costs more time at one moment than at another: the
    least disturbed of three rounds counts."""
    ratios: list[float] = []
    while len(ratios) < 3 and min(ratios, default=2.0) >= 1.5:
        alone = await _cost_of_a_job(own_domain, tmp_path, f"{tenant}-{len(ratios)}-1", 1)
        four = await _cost_of_a_job(own_domain, tmp_path, f"{tenant}-{len(ratios)}-4", 4)
        print(f"processor seconds a job: one server {alone * 1000:.3f} ms, four servers {four * 1000:.3f} ms")  # noqa: T201
        ratios.append(four / alone)
    assert min(ratios) < 1.5, ratios
