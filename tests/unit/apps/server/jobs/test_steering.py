"""What people do to a job by hand: each a version-checked write, told in the story, passed on to the pilot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, steer, story, submit, submit_one
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, own_manifest


async def _running(server: RunningServer, tenant: str, **spec: Any) -> tuple[str, ScriptedPilot, dict[str, Any]]:
    job = await submit_one(server.person("submitter", tenant=tenant), **spec)
    pilot = await ScriptedPilot.register(server, tenant)
    return job, pilot, await pilot.claim_one()


async def test_the_etag_is_the_version_and_moves_with_each_write(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    first = await ada.get(f"/v1/jobs/{job}")
    again = await ada.get(f"/v1/jobs/{job}")
    assert first.headers["etag"] == again.headers["etag"] == f'"{first.json()["version"]}"'
    held = await steer(ada, job, "hold")
    assert held.headers["etag"] != first.headers["etag"]
    assert (await ada.get(f"/v1/jobs/{job}")).headers["etag"] == held.headers["etag"]


async def test_a_cancelled_job_is_not_claimed(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    cancelled = await steer(ada, job, "cancel", reason="a mistake")
    assert cancelled.json()["state"] == "cancelled"
    assert (await steer(ada, job, "cancel")).json()["state"] == "cancelled", "a repeat is answered the same"
    pilot = await ScriptedPilot.register(server, tenant)
    assert await pilot.claim(wait=1.5) == []
    assert (await story(ada, job))[-1]["words"] == "ada cancelled it. a mistake"


@pytest.mark.finding("F-C9")
async def test_who_contradicts_a_recorded_end_is_told_so(server: RunningServer, tenant: str) -> None:
    """It is kept as evidence; the job stays as it was recorded."""
    ada = server.person("submitter", tenant=tenant)
    job, pilot, claim = await _running(server, tenant)
    assert await pilot.end(claim) == ["committed"]
    before = await read(ada, job)
    assert await pilot.end(claim, outcome="failure", exit_code=3) == ["superseded"]
    assert await pilot.end(claim, manifest=own_manifest(claim, sha256="f" * 64)) == ["superseded"]
    assert await pilot.end(claim, wall=0.7) == ["committed"], "it says the same"
    after = await read(ada, job)
    assert (after["state"], after["last"]) == (before["state"], before["last"])


async def test_cancelling_a_running_job_orders_its_pilot_to_stop(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job, pilot, claim = await _running(server, tenant)
    async with pilot.channel() as orders:
        assert (await steer(ada, job, "cancel")).json()["state"] == "cancelled"
        order = await orders.wait_for("cancel")
        assert order.data["claim"] == claim["claim"]
        assert await pilot.end(claim, outcome="failure", reason="cancelled") == ["superseded"]
        assert (await read(ada, job))["state"] == "cancelled"


async def test_the_order_reaches_a_pilot_whose_channel_is_at_another_server(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    operator = server.person("operator", tenant=tenant)
    for verb, body in (
        ("cancel", {}),
        ("force-fail", {"expected_attempt": 1, "reason": "r"}),
        ("force-complete", {"expected_attempt": 1, "reason": "r"}),
    ):
        job, pilot, claim = await _running(server, tenant)
        async with pilot.channel(other) as orders:
            assert (await steer(operator, job, verb, **body)).status_code == 200
            assert (await orders.wait_for("cancel")).data["claim"] == claim["claim"]


async def test_a_held_job_waits(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    held, free = await submit(ada, {"hold": True}, {})
    pilot = await ScriptedPilot.register(server, tenant)
    assert [claim["job"] for claim in await pilot.claim(most=2)] == [free]
    assert await pilot.claim(wait=1.5) == []
    assert (await steer(ada, held, "continue")).json()["held"] is False
    assert (await pilot.claim_one())["job"] == held


async def test_the_end_of_a_held_job_is_kept_until_it_is_continued(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job, pilot, claim = await _running(server, tenant)
    assert (await steer(ada, job, "hold", reason="wait")).json()["state"] == "running"
    manifest = own_manifest(claim)
    assert await pilot.end(claim, manifest=manifest) == ["held"]
    assert await pilot.end(claim, manifest=manifest) == ["held"]
    kept = await read(ada, job)
    assert (kept["state"], kept["winner"], kept["claim"]) == ("running", None, None)
    assert (await ada.get(f"/v1/jobs/{job}/outputs")).status_code == 404
    done = (await steer(ada, job, "continue")).json()
    assert (done["state"], done["winner"]["attempt"], done["winner"]["manifest"]) == ("completed", 1, manifest)
    assert (await ada.get(f"/v1/jobs/{job}/outputs")).json() == {"attempt": 1, "manifest": manifest}
    events = [line["event"] for line in await story(ada, job)]
    assert events == ["create", "claim", "hold", "keep-completion", "continue", "complete"]


async def test_manual_release_names_what_was_seen_or_is_refused(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant, subject="olga")
    job, pilot, claim = await _running(server, tenant)
    before = await read(operator, job)
    for attempt, name in ((2, claim["claim"]), (0, claim["claim"]), (1, "f" * 32)):
        answer = await steer(operator, job, "release", expected_attempt=attempt, expected_claim=name, reason="dead")
        problem(answer, 409)
    problem(await steer(operator, job, "release", expected_attempt=1, expected_claim=claim["claim"], reason=""), 422)
    assert await read(operator, job) == before
    async with pilot.channel() as orders:
        answer = await steer(
            operator, job, "release", expected_attempt=1, expected_claim=claim["claim"], reason="node7 is dead"
        )
        assert (answer.json()["state"], answer.json()["overlap_possible"]) == ("available", True)
        await orders.wait_for("cancel")
    successor = await ScriptedPilot.register(server, tenant)
    second = await successor.claim_one()
    assert (second["job"], second["attempt"]) == (job, 2)
    assert await pilot.end(claim) == ["superseded"]
    assert await successor.end(second) == ["committed"]
    words = [line["words"] for line in await story(operator, job)]
    assert "olga released the claim of attempt 1: node7 is dead; attempt 1 may still be running." in words


async def test_two_manual_releases_at_once_one_counts(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """Whoever is not told clearly asks again, and is told the same."""

    async def release(running_server: RunningServer, job: str, body: dict[str, Any]) -> int:
        for _ in range(10):
            answer = await steer(running_server.person("operator", tenant=tenant), job, "release", **body)
            if answer.status_code != 503:
                break
        return answer.status_code

    for _ in range(2):
        job, _, claim = await _running(server, tenant)
        body = {"expected_attempt": 1, "expected_claim": claim["claim"], "reason": "dead"}
        numbers = await asyncio.gather(*(release(running_server, job, body) for running_server in (server, other) * 2))
        assert set(numbers) <= {200, 409}
        assert 200 in numbers
        events = [line["event"] for line in await story(server.person("viewer", tenant=tenant), job)]
        assert events == ["create", "claim", "release"]
        await steer(server.person("operator", tenant=tenant), job, "cancel")


async def test_cancel_races_with_the_end_and_one_final_state_stands(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    ada = other.person("submitter", tenant=tenant)
    await submit(ada, *[{}] * 20)
    pilot = await ScriptedPilot.register(server, tenant)
    finals: list[str] = []
    while len(finals) < 20:
        for claim in await pilot.claim(most=4):
            cancel, ended = await asyncio.gather(steer(ada, claim["job"], "cancel"), pilot.end(claim))
            shown = await read(ada, claim["job"])
            finals.append(shown["state"])
            if shown["state"] == "completed":
                assert (cancel.status_code, ended) == (409, ["committed"])
            else:
                assert shown["state"] == "cancelled"
                assert (cancel.status_code, ended) == (200, ["superseded"])
    assert len(finals) == 20


async def test_retry_is_for_faulted_jobs(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    job, pilot, claim = await _running(server, tenant, when_exhausted="hold")
    problem(await steer(operator, job, "retry"), 409)
    assert await pilot.end(claim, outcome="failure", exit_code=3) == ["committed"]
    assert (await read(operator, job))["state"] == "faulted"
    assert (await steer(operator, job, "retry", reason="disk is recovered")).json()["state"] == "available"
    second = await pilot.claim_one()
    assert second["attempt"] == 2
    assert await pilot.end(second) == ["committed"]


async def test_force_names_the_attempt_that_was_seen(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant, subject="olga")
    job, pilot, claim = await _running(server, tenant)
    problem(await steer(operator, job, "force-complete", expected_attempt=0, reason="checked"), 409)
    problem(await steer(operator, job, "force-complete", expected_attempt=1, expected_generation=1, reason="x"), 409)
    done = (await steer(operator, job, "force-complete", expected_attempt=1, reason="checked by hand")).json()
    assert (done["state"], done["winner"]) == ("forced_complete", None)
    assert await pilot.end(claim) == ["superseded"]
    problem(await steer(operator, job, "force-fail", expected_attempt=1, reason="no"), 409)
    assert (await story(operator, job))[-1]["words"] == "olga marked it as complete: checked by hand."


async def test_final_jobs_cannot_be_steered(server: RunningServer, tenant: str) -> None:
    operator = server.person("operator", tenant=tenant)
    job, pilot, claim = await _running(server, tenant)
    assert await pilot.end(claim) == ["committed"]
    for verb, body in (
        ("cancel", {}),
        ("hold", {}),
        ("continue", {}),
        ("retry", {}),
        ("release", {"expected_attempt": 1, "expected_claim": claim["claim"], "reason": "r"}),
        ("force-fail", {"expected_attempt": 1, "reason": "r"}),
    ):
        problem(await steer(operator, job, verb, **body), 409)
    assert (await read(operator, job))["state"] == "completed"
