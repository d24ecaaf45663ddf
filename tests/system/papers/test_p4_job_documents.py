"""Paper P4, sections 3.1 to 3.4: the job document, its lifecycle, claims, releases, heartbeat and metadata.

Each test goes through real servers over HTTP, on every store.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, status, steer, story, submit, submit_one
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, own_manifest

from forestay.domain.jobs.claim import claim as claimed_by
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.jobs.job_store import DocumentChange, Written

pytestmark = pytest.mark.every_store


@pytest.mark.ledger("P4-01")
async def test_every_transition_is_recorded_in_the_jobs_one_document(server: RunningServer, tenant: str) -> None:
    """Sections 3.1 and 3.2: one versioned document a job; available, running, completed or failed, each recorded.

    Forestay has three states more (faulted, forced complete, cancelled) and keeps the line of each transition.
    """
    ada = server.person("submitter", tenant=tenant)
    good, bad = await submit(ada, {"name": "good"}, {"name": "bad"})
    versions: dict[str, list[str]] = {good: [], bad: []}
    for job in (good, bad):
        shown = await read(ada, job)
        assert shown["state"] == "available"
        versions[job].append(shown["version"])
    pilot = await ScriptedPilot.register(server, tenant)
    claims: dict[str, dict[str, Any]] = {}
    while len(claims) < 2:
        claims |= {claim["job"]: claim for claim in await pilot.claim(most=2)}
    for job in (good, bad):
        shown = await read(ada, job)
        assert shown["state"] == "running"
        versions[job].append(shown["version"])
    assert await pilot.end(claims[good]) == ["committed"]
    assert await pilot.end(claims[bad], outcome="failure", exit_code=1) == ["committed"]
    for job, state in ((good, "completed"), (bad, "failed")):
        shown = await read(ada, job)
        assert shown["state"] == state
        versions[job].append(shown["version"])
        assert len(set(versions[job])) == 3, "each writing has its own version"
    lines = {job: [(line["rev"], line["event"], line["state"]) for line in await story(ada, job)] for job in claims}
    assert lines[good] == [(1, "create", "available"), (2, "claim", "running"), (3, "complete", "completed")]
    assert lines[bad] == [
        (1, "create", "available"), (2, "claim", "running"), (3, "failure", "faulted"), (4, "give-up", "failed"),
    ]  # fmt: skip
    await server.refresh()
    assert (await ada.get("/v1/jobs/counts")).json()["counts"] == {"completed": 1, "failed": 1}, "one document a job"


@pytest.mark.ledger("P4-02")
async def test_exactly_one_of_many_claimers_wins(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """Section 3.1, step 2: whoever updates the version it read has the job; everyone else has not.

    40 pilots ask two servers at once for the same few jobs.
    """
    pilots = [await ScriptedPilot.register((server, other)[place % 2], tenant) for place in range(40)]
    ada = server.person("submitter", tenant=tenant)
    jobs = [await submit_one(ada)]
    asking = [asyncio.create_task(pilot.claim(wait=6)) for pilot in pilots]
    jobs += [await submit_one(ada) for _ in range(4)]
    claims = [claim for claims in await asyncio.gather(*asking) for claim in claims]
    assert sorted(claim["job"] for claim in claims) == sorted(jobs)
    assert {claim["attempt"] for claim in claims} == {1}
    for claim in claims:
        shown = await read(ada, claim["job"])
        assert (shown["claim"]["id"], shown["attempt"]) == (claim["claim"], 1)
        assert [line["event"] for line in await story(ada, claim["job"])] == ["create", "claim"]


@pytest.mark.ledger("P4-02")
async def test_of_many_writes_on_one_version_the_store_acknowledges_one(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    """Section 3.1, steps b to d, at the store itself: every writer read the same version."""
    job = await submit_one(server.person("submitter", tenant=tenant), {"hold": True})
    await steer(server.person("submitter", tenant=tenant), job, "continue")
    stores = [running_server.services.components.store for running_server in (server, other)]
    stored = (await stores[0].get([job]))[job]

    async def write(place: int) -> bool:
        document = claimed_by(stored.document, claim_id=f"{place:032x}", pilot="p", host="h", now=1)
        assert isinstance(document, JobDocument)
        (result,) = await stores[place % 2].write([DocumentChange(document, stored.version)])
        return isinstance(result, Written)

    assert sum(await asyncio.gather(*(write(place) for place in range(32)))) == 1


@pytest.mark.ledger("P4-03")
@pytest.mark.parametrize("outcome", ["ok", "failure"])
async def test_a_lost_holder_cannot_overwrite(
    server: RunningServer, other: RunningServer, tenant: str, outcome: str
) -> None:
    """Section 3.1, step 3. Deliberate difference: the paper releases without a version check, so that a holder that
    lost the job could overwrite its successor; Forestay checks the version and the claim, and keeps the late end as
    evidence."""
    operator = server.person("operator", tenant=tenant)
    job = await submit_one(operator)
    lost = await ScriptedPilot.register(server, tenant)
    first = await lost.claim_one()
    await steer(operator, job, "release", expected_attempt=1, expected_claim=first["claim"], reason="the node is down")
    successor = await ScriptedPilot.register(other, tenant)
    second = await successor.claim_one()
    running = await status(operator, job)
    assert await lost.end(first, outcome=outcome, log_tail="too late") == ["superseded"]
    assert await status(operator, job) == running, "nothing was overwritten"
    manifest = own_manifest(second)
    assert await successor.end(second, manifest=manifest) == ["committed"]
    done = await status(operator, job)
    assert (done["state"], done["winner"]) == ("completed", {"attempt": 2, "manifest": manifest})
    assert await lost.end(first, outcome=outcome) == ["superseded"]
    assert await status(operator, job) == done
    await server.refresh()
    evidence = (await operator.get(f"/v1/jobs/{job}/story")).json()["evidence"]
    assert [entry["ending"]["attempt"] for entry in evidence if entry["kind"] == "late-completion"] == [1]


@pytest.mark.ledger("P4-03")
async def test_completion_or_failure_is_recorded_with_what_the_pilot_saw(server: RunningServer, tenant: str) -> None:
    """Section 3.1, step 3: the document says whether it completed or failed; here with the facts of the end."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    facts: dict[str, Any] = {
        "exit_code": None,
        "signal": 9,
        "reason": "signal",
        "wall": 2.5,
        "cpu": 2.25,
        "peak_memory": 1 << 30,
    }
    assert await pilot.end(await pilot.claim_one(), outcome="failure", **facts) == ["committed"]
    shown = await read(ada, job)
    assert shown["state"] == "failed"
    assert {name: shown["last"][name] for name in facts} == facts


@pytest.mark.ledger("P4-04")
async def test_the_heartbeat_is_stored_and_moves(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """Section 3.3, strategy 1. Deliberate difference: not a timestamp in each job's document but a counter for each
    pilot, folded with those of many pilots into few documents of each server. It names the claims that it is for, costs no
    write a job, and no two machines' clocks are ever compared."""
    await submit(server.person("submitter", tenant=tenant), *[{}] * 3)
    pilot = await ScriptedPilot.register(server, tenant)
    claims: list[str] = []
    while len(claims) < 3:
        claims += [claim["claim"] for claim in await pilot.claim(most=3)]
    for expected in (1, 2, 3):
        await pilot.heartbeat(*claims)
        heartbeat_pages = await other.services.components.pilots.heartbeat_pages(fresh=True)
        (heartbeat,) = [
            heartbeat_page.heartbeats[pilot.name]
            for heartbeat_page in heartbeat_pages
            if pilot.name in heartbeat_page.heartbeats
        ]
        assert heartbeat.counter == expected
        assert sorted(heartbeat.claims) == sorted(claims)
    servers = {heartbeat_page.server for heartbeat_page in heartbeat_pages}
    assert len(heartbeat_pages) <= 4 * len(servers), "as many documents as servers times buckets, however many jobs"

    async def of_servers() -> int:
        return sum(
            heartbeat_page.counter
            for heartbeat_page in await other.services.components.pilots.heartbeat_pages(fresh=True)
        )

    before = await of_servers()

    async def moved() -> bool:
        return await of_servers() > before

    await until(moved, "the servers' own heartbeats to move")


@pytest.mark.ledger("P4-06")
async def test_an_administrator_releases_a_lock_by_hand(server: RunningServer, tenant: str) -> None:
    """Section 3.3, strategy 3. Beyond the paper: the release names the attempt and claim that were seen, so that
    a job which moved on meanwhile is left alone, and the story keeps who did it and why."""
    admin = server.person("administrator", tenant=tenant, subject="root")
    job = await submit_one(admin)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    viewer = server.person("viewer", tenant=tenant)
    seen = {"expected_attempt": 1, "expected_claim": claim["claim"], "reason": "node 7 burnt down"}
    problem(await steer(viewer, job, "release", **seen), 403)
    problem(await steer(admin, job, "release", **seen | {"expected_attempt": 2}), 409)
    problem(await steer(admin, job, "release", **seen | {"expected_claim": "0" * 32}), 409)
    released = (await steer(admin, job, "release", **seen)).json()
    assert (released["state"], released["claim"], released["releases"]) == ("available", None, 1)
    successor = await ScriptedPilot.register(server, tenant)
    second = await successor.claim_one()
    assert (second["job"], second["attempt"]) == (job, 2)
    problem(await steer(admin, job, "release", **seen), 409)
    assert (await read(admin, job))["claim"]["id"] == second["claim"]
    words = [line["words"] for line in await story(admin, job)]
    assert words[2] == "root released the claim of attempt 1: node 7 burnt down; attempt 1 may still be running."


@pytest.mark.ledger("P4-07")
async def test_the_metadata_is_kept_and_searchable(own_domain: Domain, tenant: str) -> None:
    """Section 3.4: expected runtime, priority, owner or team, retry count and history, resource requirements."""
    async with own_domain.server() as server:
        operator = server.person("operator", tenant=tenant)
        wanted, _ = await submit(
            operator,
            {"owner": "lovelace", "team": "engines", "priority": 42, "expected_runtime": 900,
             "resources": {"cpus": 12, "memory": 1 << 34, "disk": 1 << 36, "gpus": 2, "wall": 1800}},
            {"owner": "babbage", "team": "brass", "priority": 1, "expected_runtime": 10, "resources": {"cpus": 1}},
            max_attempts=3,
        )  # fmt: skip
        pilot = await ScriptedPilot.register(server, tenant)
        first = await pilot.claim_one()
        assert first["job"] == wanted, "the higher priority goes first"
        assert await pilot.end(first, outcome="failure", exit_code=7) == ["committed"]
        await server.refresh()
        for filters in (
            {"min_expected_runtime": 500},
            {"max_expected_runtime": 1000, "min_expected_runtime": 900},
            {"min_priority": 40},
            {"owner": "lovelace"},
            {"team": "engines"},
            {"min_failures": 1},
            {"min_attempt": 1},
            {"min_cpus": 8},
            {"min_memory": 1 << 33},
            {"min_disk": 1 << 35},
            {"min_gpus": 1},
            {"min_exit_code": 7, "max_exit_code": 7},
        ):
            jobs = (await operator.get("/v1/jobs", params=filters)).json()["jobs"]
            assert [job["id"] for job in jobs] == [wanted], filters
        ordered = (await operator.get("/v1/jobs", params={"sort": "-expected_runtime"})).json()["jobs"]
        assert ordered[0]["id"] == wanted
        for by, counted in (("owner", {"lovelace": 1, "babbage": 1}), ("priority", {"42": 1, "1": 1})):
            assert (await operator.get("/v1/jobs/counts", params={"by": by})).json()["counts"] == counted
        history = [(line["event"], line["attempt"]) for line in await story(operator, wanted)]
        assert history == [("create", 0), ("claim", 1), ("failure", 1), ("retry", 1)]
        again: dict[str, int] = {}
        while wanted not in again:
            again |= {claim["job"]: claim["attempt"] for claim in await pilot.claim(most=2)}
        assert again[wanted] == 2
        assert (await read(operator, wanted))["retries"] == 1
