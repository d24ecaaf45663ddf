"""Paper P4, sections 2.3, 2.4, 3.3 and 5.1: the monitoring service, its clients, and leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.apps.server.asks import read, steer, story, submit, submit_one
from tests.unit.apps.server.callback_listener import listen
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.apps.compose.loops import run_loops, stop
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.domain.pilots.orphans import patience

pytestmark = pytest.mark.every_store

LEASE = 2
SPEED = 8
"""The scanner's own steady time runs so much faster here; it is the only clock that leases are judged by."""


class FastClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() * SPEED


@asynccontextmanager
async def _monitored(domain: Domain) -> AsyncIterator[tuple[RunningServer, ReconcilerComponents]]:
    """A server and a reconciler with all its loops, for real."""
    async with domain.server(lease=LEASE) as server, domain.reconciler(lease=LEASE, scan_every=0.1) as reconciler:
        reconciler.orphans.clock = FastClock()
        reconciler.orphans.sweep = 5.0
        reconciler.runtimes.every = reconciler.callbacks.every = 0.1
        loops = asyncio.create_task(run_loops(reconciler.loops()))
        try:
            yield server, reconciler
        finally:
            await stop(loops)


class Beating:
    """A pilot that heartbeats in the background, several times a lease of the scanner's."""

    def __init__(self, pilot: ScriptedPilot, *claims: dict[str, Any]) -> None:
        self.pilot = pilot
        self.claims = [claim["claim"] for claim in claims]

    async def __aenter__(self) -> Beating:
        await self.pilot.heartbeat(*self.claims)
        self._task = asyncio.create_task(self._heartbeat())
        return self

    async def _heartbeat(self) -> None:
        while True:
            await self.pilot.heartbeat(*self.claims)
            await asyncio.sleep(LEASE / SPEED / 3)

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _released(client: Any, job: str) -> bool:
    return bool((await read(client, job))["state"] == "available")


@pytest.mark.ledger("P4-05")
async def test_a_job_whose_pilot_fell_silent_is_found_and_released(own_domain: Domain, tenant: str) -> None:
    """Section 3.3, strategy 2. Deliberate difference: silence alone makes an orphan; a job that runs longer than
    expected while its pilot sends heartbeats is not one, it only raises an alert."""
    async with _monitored(own_domain) as (server, reconciler):
        ada = server.person("submitter", tenant=tenant)
        await submit(ada, *[{"expected_runtime": 1}] * 2)
        silent, alive = [await ScriptedPilot.register(server, tenant) for _ in range(2)]
        orphan, kept = await silent.claim_one(), await alive.claim_one()
        await silent.heartbeat(orphan["claim"])
        async with Beating(alive, kept):
            await until(lambda: _released(ada, orphan["job"]), "the orphan to be released")
            shown = await read(ada, orphan["job"])
            assert shown["overlap_possible"], "its death is not proven"
            line = (await story(ada, orphan["job"]))[-1]
            assert (line["event"], line["by"]) == ("release", "orphan watch")
            assert (
                line["words"]
                == "orphan watch released the claim of attempt 1: its pilot fell silent; attempt 1 may still be running."
            )
            assert (await read(ada, kept["job"]))["state"] == "running"

            async def both_late() -> bool:
                alerts = (await ada.get("/v1/alerts")).json()["alerts"]
                return {kept["job"]} <= {alert["job"] for alert in alerts if alert["alert"] == "past-expected-runtime"}

            await until(both_late, "the alert of the job that runs on")
            assert reconciler.orphans.silent_found == 1
            successor = await ScriptedPilot.register(server, tenant)
            assert (await successor.claim_one())["job"] == orphan["job"]


@pytest.mark.ledger("P4-14")
async def test_a_lease_is_renewed_by_heartbeats_and_ends_without_them(own_domain: Domain, tenant: str) -> None:
    """Section 5.1 (future work there): expiry, renewal for long-running jobs, recovery of what expired."""
    async with _monitored(own_domain) as (server, reconciler):
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada)
        pilot = await ScriptedPilot.register(server, tenant)
        claim = await pilot.claim_one()
        async with Beating(pilot, claim):
            since = reconciler.orphans.fair

            async def leases_over() -> bool:
                return reconciler.orphans.fair - since > 3 * patience(LEASE)

            await until(leases_over, "three times what a silent pilot is given")
            assert (await read(ada, job))["state"] == "running", "each heartbeat renews the lease"
        await until(lambda: _released(ada, job), "the lease to end")
        successor = await ScriptedPilot.register(server, tenant)
        second = await successor.claim_one()
        assert (second["job"], second["attempt"]) == (job, 2)
        assert await pilot.end(claim) == ["superseded"], "the right to commit went with the lease"
        assert await successor.end(second) == ["committed"]
        assert (await read(ada, job))["winner"]["attempt"] == 2


@pytest.mark.ledger("P4-14")
async def test_work_done_after_the_lease_is_kept_if_nobody_began_again(own_domain: Domain, tenant: str) -> None:
    """Beyond the paper: losing the lease takes away the right to the job, not the work. A late end with no newer claim
    is adopted by the same version-checked write."""
    async with _monitored(own_domain) as (server, _):
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada)
        pilot = await ScriptedPilot.register(server, tenant)
        claim = await pilot.claim_one()
        await pilot.heartbeat(claim["claim"])
        await until(lambda: _released(ada, job), "the lease to end")
        assert await pilot.end(claim) == ["committed"]
        assert [line["event"] for line in await story(ada, job)] == ["create", "claim", "release", "adopt"]


@pytest.mark.ledger("P4-14")
async def test_a_claim_whose_answer_was_lost_is_recovered(own_domain: Domain, tenant: str) -> None:
    """The pilot lives and sends heartbeats, but never heard of its claim: two heartbeats later the job is free."""
    async with _monitored(own_domain) as (server, reconciler):
        ada = server.person("submitter", tenant=tenant)
        job = await submit_one(ada)
        pilot = await ScriptedPilot.register(server, tenant)
        await pilot.claim_one()
        async with Beating(pilot):
            await until(lambda: _released(ada, job), "the claim that nobody knows of")

        async def counted() -> bool:
            return reconciler.orphans.forgotten_found == 1

        await until(counted, "the claim to be counted, after it was released")
        line = (await story(ada, job))[-1]
        assert line["words"].endswith("its pilot does not have the claim.")
        assert not (await read(ada, job))["overlap_possible"]


@pytest.mark.ledger("P4-09")
async def test_the_monitoring_service_watches_alerts_counts_and_lets_people_act(
    own_domain: Domain, tenant: str
) -> None:
    """Section 2.3: orphans by looking at long-running jobs, alerts past the expected runtime, metrics, and an
    interface for manual intervention."""
    async with _monitored(own_domain) as (server, reconciler):
        operator = server.person("operator", tenant=tenant)
        late, orphan = await submit(
            operator, {"expected_runtime": 1, "name": "late", "priority": 5}, {"name": "orphan"}
        )
        alive, silent = [await ScriptedPilot.register(server, tenant, host=host) for host in ("node1", "node2")]
        first = await alive.claim_one()
        assert first["job"] == late
        second = await silent.claim_one()
        await silent.heartbeat(second["claim"])
        async with Beating(alive, first):
            await until(lambda: _released(operator, orphan), "the orphan to be released")

            async def alerted() -> list[dict[str, Any]]:
                return [alert for alert in (await operator.get("/v1/alerts")).json()["alerts"] if alert["job"] == late]

            (alert,) = await until(alerted, "the alert")
            assert (alert["alert"], alert["attempt"]) == ("past-expected-runtime", 1)
            assert "late of ada has run for" in alert["words"]
            assert "1 s were expected" in alert["words"]
            await asyncio.sleep(0.5)
            assert len(await alerted()) == 1, "once an attempt"
            (evidence,) = (await operator.get(f"/v1/jobs/{late}/story")).json()["evidence"]
            assert evidence["kind"] == "alert"
            counted = {sample.name: sample.value for sample in reconciler.samples() if not sample.labels}
            assert counted["forestay_orphans_silent_total"] == 1
            assert counted["forestay_runtime_alerts_total"] >= 1
            text = (await operator.get("/metrics")).text
            families = {family.name: family for family in text_string_to_metric_families(text)}
            assert families["forestay_claims_granted"].samples[0].value >= 2

            async def known_silent() -> bool:
                states = {pilot["id"]: pilot["state"] for pilot in (await operator.get("/v1/pilots")).json()["pilots"]}
                return bool((states[alive.name], states[silent.name]) == ("alive", "silent"))

            await until(known_silent, "the silent pilot to be shown as such")
            acted = await steer(
                operator, late, "release", expected_attempt=1, expected_claim=first["claim"], reason="takes too long"
            )
            assert acted.json()["state"] == "available"


def _is_of(job: str, data: dict[str, Any]) -> bool:
    return bool(data["job"]["id"] == job)


@pytest.mark.ledger("P4-10")
async def test_clients_submit_query_and_are_notified(own_domain: Domain, tenant: str) -> None:
    """Section 2.4. Two ways to be told: a callback, repeated until it is taken, and a stream of events."""
    own_domain.defaults["callback_hosts"] = ("127.0.0.1",)
    async with listen(503, 200) as listener, _monitored(own_domain) as (server, _):
        ada = server.person("submitter", tenant=tenant)
        async with read_events(ada, "/v1/events", state=["completed", "failed"]) as events:
            await events.wait_for("open")
            good, bad = await submit(ada, {"callback": listener.url()}, {"callback": listener.url()})
            pilot = await ScriptedPilot.register(server, tenant)
            ended: dict[str, str] = {}
            while len(ended) < 2:
                for claim in await pilot.claim(most=2):
                    ok = claim["job"] == good
                    assert await pilot.end(claim, outcome="ok" if ok else "failure", exit_code=0 if ok else 4) == [
                        "committed"
                    ]
                    ended[claim["job"]] = "completed" if ok else "failed"
            assert ended == {good: "completed", bad: "failed"}
            await server.refresh()
            jobs = (await ada.get("/v1/jobs", params={"state": ["completed", "failed"]})).json()["jobs"]
            assert {job["id"]: job["state"] for job in jobs} == ended
            for job in ended:
                event = await events.wait_for("job", partial(_is_of, job))
                assert event.data["job"]["state"] == ended[job]

            async def told() -> bool:
                shown = [(await read(ada, job))["callback"] for job in ended]
                return all(entry["done"] for entry in shown)

            await until(told, "both callbacks to be taken")
            taken = {delivered.body["job"]: delivered.body["state"] for delivered in listener.seen}
            assert taken == ended
            assert len(listener.seen) == 3, "the one that was refused came again"
