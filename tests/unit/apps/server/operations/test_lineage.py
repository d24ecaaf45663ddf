"""Lineage reaches a server over HTTP or a file, at least once, by one of several reconcilers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.apps.server.asks import submit, submit_one
from tests.unit.apps.server.callback_listener import listen
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import only, store_room
from tests.unit.formats.provenance.test_open_lineage import check

from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.ports.errors import Transient
from forestay.ports.flows.flow_engine import RunSummary
from forestay.services.operations.lineage_reporter import DOCUMENT, OVERLAP, TURN, LineageReporter


@pytest.fixture
async def own_server(store_kind: str, tmp_path: Path) -> AsyncIterator[RunningServer]:
    """One whose jobs are nobody else's: lineage is of all tenants."""
    async with store_room(store_kind, tmp_path) as url, Domain(url, tmp_path).server() as running:
        yield running


def telling(reconciler: ReconcilerComponents) -> LineageReporter:
    assert reconciler.lineage is not None
    return reconciler.lineage


async def test_jobs_are_told_once_in_order_by_one_of_two_reconcilers(own_server: RunningServer, tenant: str) -> None:
    server = own_server
    async with listen() as listener:
        more = {"lineage": listener.url("/api/v1/lineage")}
        async with server.domain.reconciler(**more) as reconciler, server.domain.reconciler(**more) as two:
            await asyncio.gather(telling(reconciler).look(), telling(two).look())
            ada = server.person("submitter", tenant=tenant)
            jobs = await submit(ada, *[{"name": "align"}] * 3, max_attempts=1)
            pilot = await ScriptedPilot.register(server, tenant)
            first, second = await pilot.claim_one(), await pilot.claim_one()
            await pilot.end(first)
            await server.refresh()
            await asyncio.gather(telling(reconciler).look(), telling(two).look())
            await pilot.end(second, outcome="failure", exit_code=1)
            await server.refresh()
            for _ in range(2):
                await asyncio.gather(telling(reconciler).look(), telling(two).look())
            seen = [delivered.body for delivered in listener.seen]
            for event in seen:
                check(event)
            kinds = {job: [event["eventType"] for event in seen if event["run"]["runId"] == job] for job in jobs}
            assert sorted(map(tuple, kinds.values())) == [(), ("START", "COMPLETE"), ("START", "FAIL")]
            assert {event["job"]["namespace"] for event in seen} == {f"forestay/{tenant}"}


@only("sqlite")
async def test_what_was_not_taken_is_sent_again_and_a_reconciler_that_died_leaves_its_turn(
    own_server: RunningServer, tenant: str
) -> None:
    server = own_server
    async with listen(503, 200, 500, 422, 200) as listener:
        more = {"lineage": listener.url("/api/v1/lineage")}
        async with server.domain.reconciler(**more) as dying, server.domain.reconciler(**more) as heir:
            clock = LaterClock()
            telling(dying).clock = telling(heir).clock = clock
            await telling(dying).look()
            job = await submit_one(server.person("submitter", tenant=tenant), {"name": "align"})
            pilot = await ScriptedPilot.register(server, tenant)
            await pilot.end(await pilot.claim_one())
            await server.refresh()
            for _ in range(2):
                try:
                    await telling(dying).look()
                except Transient:
                    continue
            await telling(heir).look()
            clock.ahead += TURN + 1
            await telling(heir).look()
            assert telling(heir).refused == 1, "an event that is refused for good holds nothing up"
            events = Counter(seen.body["eventType"] for seen in listener.seen if seen.body["run"]["runId"] == job)
            assert events["START"] >= 2
            assert events["COMPLETE"] >= 1
            body = (await heir.components.documents.get([DOCUMENT]))[DOCUMENT].document.body
            assert body["by"] == telling(heir).me


@only("sqlite")
async def test_a_file_gets_a_line_an_event(own_server: RunningServer, tenant: str, tmp_path: Path) -> None:
    server, file = own_server, tmp_path / "lineage.jsonl"
    async with server.domain.reconciler(lineage=f"file:{file}") as reconciler:
        await telling(reconciler).look()
        await submit_one(server.person("submitter", tenant=tenant), {"name": "align"})
        pilot = await ScriptedPilot.register(server, tenant)
        await pilot.end(await pilot.claim_one())
        await server.refresh()
        await telling(reconciler).look()
        events = [json.loads(line) for line in file.read_text().splitlines()]
        mine = [event for event in events if event["job"]["namespace"].endswith(tenant)]
        assert [event["eventType"] for event in mine] == ["START", "COMPLETE"]


@only("sqlite")
async def test_a_run_that_goes_on_in_a_new_run_is_not_begun_again(own_server: RunningServer, tmp_path: Path) -> None:
    """By another reconciler too, which does not remember what was told; its end is told with its true beginning."""
    file = tmp_path / "lineage.jsonl"

    class Runs:
        found: tuple[RunSummary, ...] = ()

        async def moved(self, since: int) -> tuple[RunSummary, ...]:
            return self.found

    more = {"lineage": f"file:{file}"}
    async with own_server.domain.reconciler(**more) as first, own_server.domain.reconciler(**more) as heir:
        clock, runs = LaterClock(), Runs()
        for lineage in (telling(first), telling(heir)):
            lineage.clock, lineage.runs = clock, runs
        await telling(first).look()
        began = clock.now()
        running = RunSummary("c1", "t", "ada", "long", "v1", "running", began, None)
        other = running._replace(run="c2", started=began + 2 * OVERLAP)
        runs.found = (running,)
        await telling(first).look()
        clock.ahead += TURN + 2 * OVERLAP
        runs.found = (running, other)
        await telling(first).look()
        clock.ahead += TURN + 1
        await telling(heir).look()
        runs.found = (running._replace(state="completed", ended=clock.now()),)
        await telling(heir).look()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    counted = Counter((event["run"]["runId"], event["eventType"], event["eventTime"]) for event in events)
    assert len(counted) == 3, "each event has one time, however often it is told"
    assert [event["eventType"] for event in events if event["job"]["name"] == "long"][:2] == ["START", "START"]
    mine = [event["eventType"] for event in events if event["run"]["runId"] == events[0]["run"]["runId"]]
    assert mine == ["START", "START", "COMPLETE"], "begun again only together with its end"
