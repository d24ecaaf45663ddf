"""Hosts that only fail: closed for all, probed, opened again; by hand too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.domain.scheduling.host_health import HealthPolicy

FAILED: dict[str, Any] = {"outcome": "failure", "exit_code": 1, "wall": 0.1}


async def _shown(server: RunningServer, tenant: str, host: str) -> dict[str, Any]:
    answer = await server.person("viewer", tenant=tenant).get("/v1/hosts")
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = next(other_host for other_host in answer.json()["hosts"] if other_host["host"] == host)
    return result


async def _black_hole(server: RunningServer, tenant: str) -> tuple[ScriptedPilot, ScriptedPilot, int]:
    """A pilot on a good host and one on a host that fails everything, until that is closed; how many jobs it has eaten."""
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, *({} for _ in range(40)), command=["true"], max_attempts=9)
    good = await ScriptedPilot.register(server, tenant, host="good")
    bad = await ScriptedPilot.register(server, tenant, host="bad", slots=32)
    for claim in await good.claim(most=2):
        await good.end(claim, host="good")
    eaten, status = 0, "open"
    while status == "open":
        claims = await bad.claim(most=32, wait=5)
        eaten += len(claims)
        for claim in claims:
            await bad.end(claim, host="bad", **FAILED)
        status = (await _shown(server, tenant, "bad"))["status"]
    return good, bad, eaten


async def test_a_host_that_fails_everything_eats_five_jobs_and_gets_no_more(server: RunningServer, tenant: str) -> None:
    good, bad, eaten = await _black_hole(server, tenant)
    assert eaten <= 5
    assert await bad.claim(most=32, wait=0.5) == [], "it gets no more"
    await good.claim_many(8)
    shown = await _shown(server, tenant, "bad")
    assert (shown["status"], shown["failures"]) == ("closed", 5)
    assert "5 jobs failed there" in shown["words"]
    assert (await _shown(server, tenant, "good"))["status"] == "open"
    viewer = server.person("viewer", tenant=tenant)

    async def told() -> bool:
        alerts = (await viewer.get("/v1/alerts")).json()["alerts"]
        return any(alert["alert"] == "host-closed" for alert in alerts)

    await until(told, "the alert to be found")


async def test_a_probe_that_goes_well_opens_the_host(server: RunningServer, tenant: str) -> None:
    hosts = server.services.hosts
    before, hosts.policy = hosts.policy, replace(hosts.policy, probe_after=1)
    try:
        _, bad, _ = await _black_hole(server, tenant)
        (probe,) = await bad.claim(most=32, wait=10)
        await bad.end(probe, host="bad")

        async def opened() -> bool:
            return bool((await _shown(server, tenant, "bad"))["status"] == "open")

        await until(opened, "the host to be open")
        await bad.claim_many(8)
    finally:
        hosts.policy = before


async def test_a_program_that_fails_everywhere_closes_no_host(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, *({} for _ in range(30)), command=["false"])
    pilots = []
    for host in ("one", "two"):
        pilot = await ScriptedPilot.register(server, tenant, host=host)
        pilots.append(pilot)
    for _ in range(8):
        for pilot, host in zip(pilots, ("one", "two"), strict=True):
            (claim,) = await pilot.claim(most=1, wait=5)
            await pilot.end(claim, host=host, **FAILED)
    for host in ("one", "two"):
        assert (await _shown(server, tenant, host))["status"] == "open"


@pytest.mark.finding("F-B3")
@pytest.mark.parametrize("specifications", [1, 40])
async def test_a_crowd_that_fails_costs_others_less_than_a_tenth(
    server: RunningServer, tenant: str, specifications: int
) -> None:
    """Of the slots that are given while the others' jobs wait; the crowd came first, and the hosts say what they do."""
    eve = server.person("submitter", tenant=tenant, subject="eve")
    for number in range(specifications):
        await submit(eve, *({} for _ in range(200 // specifications)), command=["false", str(number)], max_attempts=2)
    await submit(server.person("submitter", tenant=tenant, subject="bob"), *({} for _ in range(200)), command=["true"])

    async def seen() -> bool:
        """Some stores show what was written only a second later."""
        counts = (await eve.get("/v1/jobs/counts", params={"by": "owner"})).json()["counts"]
        return bool(counts.get("bob") == 200)

    await until(seen, "the others' jobs to be found")
    hosts = ("one", "two", "three", "four")
    pilots = {host: await ScriptedPilot.register(server, tenant, host=host, slots=5) for host in hosts}
    good, bad, failures = 0, 0, Counter[str]()
    while good < 200:
        given = 0
        for host, pilot in pilots.items():
            for claim in await pilot.claim(most=5, wait=2):
                given += 1
                failing = claim["owner"] == "eve"
                await pilot.end(claim, host=host, **(FAILED if failing else {}))
                good, bad = good + (not failing), bad + failing
                failures[host] += failing
        assert given, f"{good} good jobs and {bad} others were given, then nothing"
    # Each host has to see the failures for itself; after that what fails gets one job in ten seconds, or what is left.
    assert bad <= 0.1 * 200 + 2 * 5 * len(hosts)
    words = {host: (await _shown(server, tenant, host))["words"] for host in hosts}
    doubting = {host for host in hosts if "fast failures" in words[host]}
    assert doubting == {host for host in hosts if failures[host] >= HealthPolicy().most} != set(), (words, failures)


async def test_a_person_closes_and_opens_a_host(server: RunningServer, tenant: str) -> None:
    ada, operator = server.person("submitter", tenant=tenant), server.person("operator", tenant=tenant)
    await submit(ada, command=["true"])
    pilot = await ScriptedPilot.register(server, tenant, host="n1")
    closed = await operator.post("/v1/hosts/n1/close", json={"reason": "a disk is changed", "seconds": 600})
    assert closed.status_code == 200, closed.text
    assert closed.json()["status"] == "closed"
    assert await pilot.claim(wait=0.5) == []
    opened = await operator.post("/v1/hosts/n1/open", json={"reason": "done"})
    assert opened.json()["status"] == "open"
    assert len(await pilot.claim(wait=5)) == 1
    problem(await ada.post("/v1/hosts/n1/close", json={"reason": "x"}), 403)


async def test_another_tenants_hosts_are_its_own(server: RunningServer, tenant: str) -> None:
    await server.person("operator", tenant=tenant).post("/v1/hosts/n1/close", json={"reason": "mine"})
    other = await server.person("viewer", tenant=f"{tenant}x").get("/v1/hosts")
    assert other.json() == {"hosts": []}


def test_the_defaults_are_those_of_the_page() -> None:
    assert HealthPolicy() == HealthPolicy(fast=60, most=5, span=60, probe_after=30, longest=600, expiry=3600)
