"""Events: every transition, from this server and from others, to whoever may hear of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.server.asks import problem, steer, submit, submit_one
from tests.server.event_reader import EventReader, read_events
from tests.server.later_clock import LaterClock
from tests.server.running import RunningServer
from tests.server.scripted_pilot import ScriptedPilot


def _lines(reader: EventReader, job: str) -> list[tuple[int, str]]:
    told = [event.data for event in reader.named("job") if event.data["job"]["id"] == job]
    return [(data["transition"]["rev"], data["transition"]["event"]) for data in told]


async def _walk(server: RunningServer, tenant: str, person: Any) -> str:
    job = await submit_one(person)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    await steer(person, job, "hold")
    await pilot.end(claim)
    await steer(person, job, "continue")
    return job


WALK = [(1, "create"), (2, "claim"), (3, "hold"), (4, "keep-end"), (5, "continue"), (6, "complete")]


async def test_every_transition_is_told_once_and_in_order(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with read_events(ada, "/v1/events") as seen:
        await seen.wait_for("open")
        job = await _walk(server, tenant, ada)
        last = await seen.wait_for("job", lambda data: data["transition"]["event"] == "complete")
        assert _lines(seen, job) == WALK
        assert last.data["job"]["state"] == "completed"
        assert last.data["transition"]["words"] == "Attempt 1 ended well, and it is the one that counts."


async def test_transitions_made_at_another_server_are_told_too(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    here, there = server.person("submitter", tenant=tenant), other.person("submitter", tenant=tenant)
    async with read_events(here, "/v1/events") as seen:
        await seen.wait_for("open")
        job = await _walk(other, tenant, there)
        await seen.wait_for("job", lambda data: data["transition"]["event"] == "complete")
        assert _lines(seen, job) == WALK


async def test_a_server_whose_clock_is_ahead_hides_nothing(
    server: RunningServer, other: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = server.person("submitter", tenant=tenant), other.person("submitter", tenant=tenant)
    ahead = await submit_one(there)
    async with read_events(here, "/v1/events") as seen:
        await seen.wait_for("open")
        with monkeypatch.context() as changed:
            changed.setattr(other.services.steer, "clock", LaterClock(3_600_000))
            await steer(there, ahead, "hold")
        await seen.wait_for("job", lambda data: data["transition"]["event"] == "hold")
        job = await submit_one(there)
        await seen.wait_for("job", lambda data: data["job"]["id"] == job)


async def test_events_are_filtered_as_searches_are(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with (
        read_events(ada, "/v1/events", label="run=1", state="cancelled") as chosen,
        read_events(ada, "/v1/events", min_priority=5) as urgent,
    ):
        await chosen.wait_for("open")
        await urgent.wait_for("open")
        one, two, three = await submit(ada, {"labels": {"run": "1"}}, {"labels": {"run": "2"}}, {"priority": 7})
        for job in (two, three, one):
            await steer(ada, job, "cancel")
        await chosen.wait_for("job", lambda data: data["job"]["id"] == one)
        await urgent.wait_for("job", lambda data: data["job"]["state"] == "cancelled")
        assert {event.data["job"]["id"] for event in chosen.named("job")} == {one}
        assert {event.data["job"]["id"] for event in urgent.named("job")} == {three}
    problem(await ada.get("/v1/events", params={"colour": "red"}), 422)


async def test_a_broken_stream_goes_on_where_it_broke(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """What happened meanwhile is told when the reader comes back with the last id it saw, at any server."""
    ada = server.person("submitter", tenant=tenant)
    async with read_events(ada, "/v1/events") as seen:
        await seen.wait_for("open")
        before, during = await submit(ada, {}, {})
        await seen.wait_for("job", lambda data: data["job"]["id"] == during)
        last = seen.named("job")[-1].id
    assert last is not None
    await steer(ada, before, "cancel")
    await steer(ada, during, "hold")
    new = await submit_one(ada)
    await server.refresh()
    back = other.person("viewer", tenant=tenant)
    async with read_events(back, "/v1/events", headers={"Last-Event-ID": last}) as again:
        await again.wait_for("job", lambda data: data["job"]["id"] == new)
        await again.wait_for("job", lambda data: data["transition"]["event"] == "cancel")
        await again.wait_for("job", lambda data: data["transition"]["event"] == "hold")
        assert [line for line in _lines(again, before) if line[0] > 1] == [(2, "cancel")]
        await steer(ada, new, "cancel")
        await again.wait_for("job", lambda data: data["job"]["id"] == new and data["job"]["state"] == "cancelled")
    for odd in ("nothing", "x:y:z", "9" * 99, "-1:a:1", "1:a:x"):
        problem(await back.get("/v1/events", headers={"Last-Event-ID": odd}), 400)


async def test_many_readers_and_one_that_leaves(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with read_events(ada, "/v1/events") as stays:
        async with read_events(ada, "/v1/events") as leaves:
            await asyncio.gather(stays.wait_for("open"), leaves.wait_for("open"))
        job = await submit_one(ada)
        await stays.wait_for("job", lambda data: data["job"]["id"] == job)
