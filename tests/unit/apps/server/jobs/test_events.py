"""Events: every transition, from this server and from others, to whoever may hear of it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.unit.apps.server.asks import problem, steer, submit, submit_one
from tests.unit.apps.server.event_reader import EventReader, read_events
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.adapters.system.clock import SystemClock
from forestay.ports.jobs.job_store import JobPage, JobQuery, JobStore, Stored
from forestay.services.jobs.job_events import OLDEST, OVERLAP, EventCursor, JobEvents

pytestmark = pytest.mark.every_store


class SearchedStore:
    """A job store that notes what its searches ask for and read."""

    def __init__(self, store: JobStore, read: list[Stored], queries: list[JobQuery] | None = None) -> None:
        self._store = store
        self._read = read
        self._queries = [] if queries is None else queries

    async def search(self, query: JobQuery, **options: Any) -> JobPage:
        page = await self._store.search(query, **options)
        self._queries.append(query)
        self._read += page.jobs
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _lines(reader: EventReader, job: str) -> list[tuple[int, str]]:
    results = [event.data for event in reader.named("job") if event.data["job"]["id"] == job]
    return [(data["transition"]["rev"], data["transition"]["event"]) for data in results]


async def _walk(server: RunningServer, tenant: str, person: Any) -> str:
    job = await submit_one(person)
    pilot = await ScriptedPilot.register(server, tenant)
    claim = await pilot.claim_one()
    await steer(person, job, "hold")
    await pilot.end(claim)
    await steer(person, job, "continue")
    return job


WALK = [(1, "create"), (2, "claim"), (3, "hold"), (4, "keep-completion"), (5, "continue"), (6, "complete")]


async def test_every_transition_is_told_once_and_in_order(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with read_events(ada, "/v1/events") as seen:
        await seen.wait_for("open")
        job = await _walk(server, tenant, ada)
        last = await seen.wait_for("job", lambda data: data["transition"]["event"] == "complete")
        assert _lines(seen, job) == WALK
        assert last.data["job"]["state"] == "completed"
        assert last.data["transition"]["words"] == "Attempt 1 succeeded; its outputs were committed."


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
        first, two, three = await submit(ada, {"labels": {"run": "1"}}, {"labels": {"run": "2"}}, {"priority": 7})
        for job in (two, three, first):
            await steer(ada, job, "cancel")
        await chosen.wait_for("job", lambda data: data["job"]["id"] == first)
        await urgent.wait_for("job", lambda data: data["job"]["state"] == "cancelled")
        assert {event.data["job"]["id"] for event in chosen.named("job")} == {first}
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


@pytest.mark.finding("F-C3")
@pytest.mark.parametrize("cursor", ["0:x:0", "recent"])
async def test_a_stream_reads_no_job_of_another_tenant(own_domain: Domain, tenant: str, cursor: str) -> None:
    """On each kind of store, whatever the cursor says: neither a missed event nor a look for new ones reads them."""
    async with own_domain.server() as server, own_domain.server() as other:
        strangers = {*await submit(other.person("submitter", tenant=f"{tenant}-b"), *[{}] * 20)}
        await server.refresh()
        read: list[Stored] = []
        follow = server.services.job_events
        follow.store = cast("JobStore", SearchedStore(follow.store, read))
        ada = server.person("submitter", tenant=tenant)
        mark = cursor if cursor != "recent" else f"{SystemClock().now() - 60_000}:x:0"
        async with read_events(ada, "/v1/events", headers={"Last-Event-ID": mark}) as seen:
            await seen.wait_for("open")
            own = await submit_one(other.person("submitter", tenant=tenant))
            strangers |= {*await submit(other.person("submitter", tenant=f"{tenant}-b"), *[{}] * 20)}
            await seen.wait_for("job", lambda data: data["job"]["id"] == own)
            assert bool(seen.named("lost")) is (cursor == "0:x:0")
        assert own in {stored.document.id for stored in read}
        assert not strangers & {stored.document.id for stored in read}


@pytest.mark.finding("F-C3")
async def test_a_cursor_goes_back_an_hour_at_most(server: RunningServer, tenant: str) -> None:
    follow = server.services.job_events
    job = await submit_one(server.person("submitter", tenant=tenant))
    queries: list[JobQuery] = []
    store = SearchedStore(follow.store, [], queries)
    past = JobEvents(cast("JobStore", store), follow.clock)
    missed = [news.document.id async for news in past.missed(EventCursor(0, "x", 0), JobQuery(tenant=tenant))]
    assert missed == [job]
    (query,) = queries
    assert query.tenant == tenant
    assert query.at_least["changed"] >= follow.clock.now() - OLDEST - OVERLAP - 60_000
    assert past.too_old(EventCursor(0, "x", 0))
    assert not past.too_old(EventCursor(follow.clock.now() - OLDEST // 2, "x", 0))


async def test_many_readers_and_one_that_leaves(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    async with read_events(ada, "/v1/events") as stays:
        async with read_events(ada, "/v1/events") as leaves:
            await asyncio.gather(stays.wait_for("open"), leaves.wait_for("open"))
        job = await submit_one(ada)
        await stays.wait_for("job", lambda data: data["job"]["id"] == job)
