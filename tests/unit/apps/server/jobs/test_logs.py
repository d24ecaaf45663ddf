"""Logs: what an ended attempt left, and what a running one prints, wherever its pilot's channel is."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.apps.server.asks import problem, steer, submit_one
from tests.unit.apps.server.event_reader import EventReader, read_events
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot


async def _send(pilot: ScriptedPilot, claim: dict[str, Any], *pieces: str, server: RunningServer | None = None) -> None:
    offset = 0
    for place, text in enumerate(pieces):
        last = place == len(pieces) - 1
        body = {"claim": claim["claim"], "offset": offset, "text": text, "last": last}
        assert (await pilot.post("log", body, server)).status_code == 200
        offset += len(text.encode())


def _text(reader: EventReader) -> str:
    return "".join(event.data["text"] for event in reader.named("log"))


async def test_each_attempt_keeps_its_own_log(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, max_attempts=2)
    problem(await ada.get(f"/v1/jobs/{job}/log"), 404)
    pilot = await ScriptedPilot.register(server, tenant)
    first = await pilot.claim_one()
    problem(await ada.get(f"/v1/jobs/{job}/log"), 404)
    await pilot.end(first, outcome="failure", exit_code=1, log_tail="first\n", log_bytes=6)
    await pilot.end(await pilot.claim_one(), log_tail="second ✓\n")
    await server.refresh()
    assert (await ada.get(f"/v1/jobs/{job}/log")).text == "second ✓\n"
    assert (await ada.get(f"/v1/jobs/{job}/log", params={"attempt": 1})).text == "first\n"
    problem(await ada.get(f"/v1/jobs/{job}/log", params={"attempt": 3}), 404)
    problem(await ada.get(f"/v1/jobs/{job}/log", params={"attempt": 0}), 422)
    async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as seen:
        await seen.wait_for("end")
        assert _text(seen) == "second ✓\n"


async def test_an_attempt_that_printed_nothing_has_an_empty_log(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one())
    answer = await ada.get(f"/v1/jobs/{job}/log")
    assert (answer.status_code, answer.text) == (200, "")


async def test_a_running_log_is_followed_to_its_end(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel() as orders:
        claim = await pilot.claim_one()
        async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as seen:
            order = await orders.wait_for("log")
            assert order.data == {"claim": claim["claim"], "follow": True}
            await _send(pilot, claim, "one\n", "twö\n", "")
            await seen.wait_for("end")
            await seen.wait_for_end()
            assert _text(seen) == "one\ntwö\n"


async def test_a_log_is_followed_across_servers(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """The reader is at one server, the pilot's channel and its answers are at another."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(other, tenant)
    async with pilot.channel() as orders:
        claim = await pilot.claim_one()
        async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as seen:
            await orders.wait_for("log")
            await _send(pilot, claim, "one\n", "two\n", "")
            await seen.wait_for("end")
            assert _text(seen) == "one\ntwo\n"


async def test_a_second_reader_gets_the_whole_log_and_the_first_no_line_twice(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    async with pilot.channel() as orders:
        claim = await pilot.claim_one()
        async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as first:
            await orders.wait_for("log")
            body = {"claim": claim["claim"], "offset": 0, "text": "one\n", "last": False}
            await pilot.post("log", body)
            await first.wait_for("log")
            async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as second:

                async def ordered_again() -> bool:
                    return len(orders.named("log")) == 2

                await until(ordered_again, "the second order")
                # A pilot begins anew for each order; both streams of pieces arrive mixed.
                await pilot.post("log", body)
                await pilot.post("log", body | {"offset": 4, "text": "two\n"})
                await pilot.post("log", body | {"offset": 4, "text": "two\n", "last": True})
                await asyncio.gather(first.wait_for("end"), second.wait_for("end"))
                assert _text(first) == "one\ntwo\n"
                assert _text(second) == "one\ntwo\n"


async def test_following_ends_with_the_attempt_when_its_pilot_says_nothing(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    async with read_events(ada, f"/v1/jobs/{job}/log", follow="true") as seen:
        await pilot.end(claim, log_tail="said at the end\n")
        await seen.wait_for("end")
        assert _text(seen) == "said at the end\n"


async def test_a_held_job_whose_end_is_kept_shows_its_log(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    await steer(ada, job, "hold")
    assert await pilot.end(claim, log_tail="kept\n") == ["held"]
    await server.refresh()
    assert (await ada.get(f"/v1/jobs/{job}/log")).text == "kept\n"
