"""Sub-flows that may go elsewhere: placed, sent again, moved, refused and called off, with a peer that does what a test tells it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.apps.server.later_clock import LaterClock

from forestay.adapters.joserfc.peer_tokens import Ed25519Tokens
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.domain.flows.events import RunEnded
from forestay.domain.peers.peer import GRACE, Peer
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.domain.peers.routing import HERE, Offer
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.formats.ga4gh.peer_offer import offer_tags
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.flows.flow_engine import FlowEngine, RunStart
from forestay.ports.peers.peer import Caller, PeerInfo, PeerRun, Renewed
from forestay.services.flows.flow_store import FlowStore
from forestay.services.peers.peer_capacity import PeerCapacity
from forestay.services.peers.peer_links import AWAY, EVENT, PeerLinks
from forestay.services.peers.peer_poller import PeerPoller
from forestay.services.peers.peer_registry import PeerRegistry
from forestay.services.peers.run_placement import RunPlacement
from forestay.services.sites.site_registry import SiteRegistry

TENANT = "physics"
FLOW = "{forestay: 1, name: inner, tasks: {one: {command: [echo]}}}"
PLENTY = Offer("", cpus=8, memory=1 << 40, slots=8, free=8, turn=1.0)


@dataclass
class Line:
    """The other domain."""

    clock: LaterClock
    away: bool = False
    refuses: bool = False
    sent: list[str] = field(default_factory=list)
    runs: dict[str, PeerRun] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    """How many runs each renewal asked after."""

    def _answer(self) -> None:
        if self.away:
            raise Transient("nobody answers")

    async def hello(self, _peer: Peer, _who: Caller) -> PeerInfo:
        self._answer()
        return PeerInfo(self.clock.now(), offer_tags(PLENTY, self.clock.now()))

    async def send(
        self, _peer: Peer, _who: Caller, *, key: str, flow: str, params: Mapping[str, object], stamp: int
    ) -> str:
        self._answer()
        assert stamp
        assert flow
        if self.refuses:
            raise Permanent("not here")
        self.sent.append(key)
        self.runs.setdefault(f"run-{key}", PeerRun("RUNNING", {}, ""))
        return f"run-{key}"

    async def renew(self, _peer: Peer, _who: Caller, runs: Sequence[str], *, stamp: int) -> Renewed:
        self._answer()
        self.asked.append(len(runs))
        return Renewed(stamp, {run: self.runs[run] for run in runs if run in self.runs})

    async def cancel(self, _peer: Peer, _who: Caller, run: str) -> None:
        self.cancelled.append(run)

    async def goodbye(self, _peer: Peer, _who: Caller) -> None: ...


@dataclass
class Engine:
    """Notes what is started here, and what runs are told."""

    started: list[RunStart] = field(default_factory=list)
    received: list[tuple[str, Sequence[RunEnded]]] = field(default_factory=list)
    gone: bool = False

    async def start(self, start: RunStart) -> bool:
        self.started.append(start)
        return True

    async def tell_run(self, run: str, events: Sequence[RunEnded]) -> None:
        if self.gone:
            raise NotFound("it has ended")
        self.received.append((run, events))


@dataclass
class Scenario:
    places: RunPlacement
    follow: PeerPoller
    line: Line
    engine: Engine
    clock: LaterClock
    flow: str

    def wanted(self, number: int = 1, domain: str = "any") -> Placing:
        """Of runs above that have two sub-flows each."""
        parent = f"above-{number // 2}"
        return Placing(f"run-{number}", TENANT, "ada", parent, "go@1", number % 2, self.flow, "inner", domain)

    async def look(self, later: int = 1000) -> None:
        self.clock.ahead += later
        await self.follow.look()
        await self.follow.settled()

    async def state(self, number: int = 1) -> Placing:
        return await self.places.place(self.wanted(number))


@pytest.fixture
async def scenario(tmp_path: Path) -> AsyncIterator[Scenario]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    await store.open()
    clock = LaterClock()
    documents = SqlDocumentStore(store.database)
    flows = FlowStore(store, clock)
    read = read_flow_text(FLOW)
    assert read.flow is not None
    version = await flows.put(read.flow, tenant=TENANT)
    peers = PeerRegistry(documents, clock, Ed25519Tokens(tmp_path / "own", clock))
    key = Ed25519Tokens(tmp_path / "other", clock).public
    await peers.put(Peer("south", "http://127.0.0.1:1", key, sends=frozenset({TENANT}), lease=10))
    line, engine = Line(clock), Engine()
    links = PeerLinks(documents, store, clock)
    offer = PeerCapacity(store, SqlPilotStore(store.database), SiteRegistry(documents, clock), clock)
    flow_engine = cast(FlowEngine, engine)
    places = RunPlacement(documents, flows, flow_engine, peers, links, offer, line, clock)
    made = Scenario(places, PeerPoller(peers, links, places, line, flow_engine, clock), line, engine, clock, version)
    await made.look()
    try:
        yield made
    finally:
        await store.close()


async def test_ends_are_heard_by_one_call_and_told_to_each_run_together(scenario: Scenario) -> None:
    placed = [await scenario.places.place(scenario.wanted(number)) for number in range(4)]
    assert {placing.at for placing in placed} == {"south"}
    assert {placing.state for placing in placed} == {PlacingState.SENT}
    for placing in placed:
        scenario.line.runs[placing.remote_run] = PeerRun("COMPLETE", {"n": placing.index}, "")
    await scenario.look()
    assert scenario.line.asked == [4]
    assert sorted((run, len(events)) for run, events in scenario.engine.received) == [("above-0", 2), ("above-1", 2)]
    assert all(
        event.well and event.outputs == {"n": event.index} for _, events in scenario.engine.received for event in events
    )
    await scenario.look()
    assert scenario.line.asked == [4], "what is over is not asked after"


async def test_a_repeat_changes_nothing_and_a_lost_request_is_sent_again_under_its_key(scenario: Scenario) -> None:
    scenario.line.away = True
    placed = await scenario.places.place(scenario.wanted())
    assert (placed.at, placed.state) == ("south", PlacingState.CHOSEN)
    scenario.line.away = False
    await scenario.look()
    assert await scenario.state() == replace(placed, state=PlacingState.SENT, remote_run="run-run-1:1")
    assert scenario.line.sent == ["run-1:1"]
    assert scenario.engine.started == []


async def test_a_peer_that_is_away_keeps_its_work_for_its_lease_and_the_time_to_stop(scenario: Scenario) -> None:
    await scenario.places.place(scenario.wanted())
    heard = (await scenario.places.links.get("south")).heard
    scenario.line.away = True
    await scenario.look(heard + 10_000 + GRACE - 500 - scenario.clock.now())
    assert (await scenario.state()).at == "south"
    await scenario.look(600)
    (started,) = scenario.engine.started
    assert (started.run, started.parent) == ("run-1", {"run": "above-0", "work": "go@1", "index": 1})
    moved = await scenario.state()
    assert (moved.at, moved.number, moved.state) == (HERE, 2, PlacingState.OVER)
    scenario.line.away = False
    scenario.line.runs["run-run-1:1"] = PeerRun("COMPLETE", {}, "")
    await scenario.look()
    assert scenario.engine.received == [], "an end that comes late counts for nothing"
    events = await scenario.places.links.store.find_records(kind=EVENT, job="south")
    assert [str(event.body["what"]) for event in events][-2:] == ["moved:run-1:1", "late:run-1:1"]
    assert await scenario.places.left_at("south") == []


async def test_why_a_peer_never_answered_is_kept_once(scenario: Scenario) -> None:
    links = scenario.places.links
    for _ in range(AWAY + 2):
        await links.failed("west", "nobody answers")
    (event,) = await links.store.find_records(kind=EVENT, job="west")
    assert (event.body["what"], event.body["detail"]) == ("disconnected", "nobody answers")


async def test_what_a_peer_stopped_for_its_lease_has_not_failed(scenario: Scenario) -> None:
    placed = await scenario.places.place(scenario.wanted())
    scenario.line.runs[placed.remote_run] = PeerRun("CANCELING", {}, "", stopped=True)
    await scenario.look()
    assert (await scenario.state()).number == 1, "it may still run"
    scenario.line.runs[placed.remote_run] = PeerRun("CANCELED", {}, "", stopped=True)
    await scenario.look()
    again = await scenario.state()
    assert (again.number, again.tried) == (2, ("south",))
    assert scenario.engine.received == []


async def test_a_peer_that_lost_its_store_is_sent_it_anew(scenario: Scenario) -> None:
    placed = await scenario.places.place(scenario.wanted(domain="south"))
    del scenario.line.runs[placed.remote_run]
    await scenario.look()
    assert scenario.line.sent == ["run-1:1", "run-1:2"]


async def test_a_run_that_still_goes_on_where_it_was_left_is_ended(scenario: Scenario) -> None:
    await scenario.places.place(scenario.wanted())
    scenario.line.away = True
    await scenario.look(30_000)
    assert len(scenario.engine.started) == 1
    scenario.line.away = False
    await scenario.look()
    assert scenario.line.cancelled == ["run-run-1:1"]


async def test_what_a_peer_refuses_runs_here_unless_that_peer_was_asked_for(scenario: Scenario) -> None:
    scenario.line.refuses = True
    placed = await scenario.places.place(scenario.wanted(1))
    assert (placed.at, placed.number) == (HERE, 2)
    assert [start.run for start in scenario.engine.started] == ["run-1"]
    with pytest.raises(Permanent, match="refused"):
        await scenario.places.place(scenario.wanted(2, "south"))
    await scenario.look()
    ((run, (end,)),) = scenario.engine.received
    assert (run, end.well) == ("above-1", False)
    with pytest.raises(Permanent, match="may not use"):
        await scenario.places.place(scenario.wanted(3, "nowhere"))


async def test_a_named_domain_is_waited_for(scenario: Scenario) -> None:
    scenario.line.away = True
    for _ in range(3):
        await scenario.look()
    scenario.places._known = (-10.0, {}, {})
    with pytest.raises(Transient, match="not connected"):
        await scenario.places.place(scenario.wanted(1, "south"))
    assert (await scenario.places.place(scenario.wanted(2))).at == HERE, "any may stay"


async def test_the_run_above_calls_it_off(scenario: Scenario) -> None:
    placing, two = [await scenario.places.place(scenario.wanted(number)) for number in (0, 1)]
    await scenario.places.cancel(placing.run)
    await scenario.places.cancel("nobody")
    await scenario.look()
    assert scenario.line.cancelled == [placing.remote_run]
    scenario.line.runs[placing.remote_run] = PeerRun("CANCELED", {}, "cancelled")
    await scenario.look()
    ((_, (end,)),) = scenario.engine.received
    assert (end.index, end.well) == (0, False)
    await scenario.places.cancel(two.run)
    scenario.line.away = True
    await scenario.look(30_000)
    assert scenario.engine.started == [], "what is not wanted any more is not begun elsewhere"
    assert [events[0].index for _, events in scenario.engine.received] == [0, 1]


async def test_a_run_above_that_has_ended_needs_to_hear_nothing(scenario: Scenario) -> None:
    placed = await scenario.places.place(scenario.wanted())
    scenario.line.runs[placed.remote_run] = PeerRun("EXECUTOR_ERROR", {}, "bad")
    scenario.engine.gone = True
    await scenario.look()
    assert (await scenario.state()).state is PlacingState.OVER


async def test_a_placing_survives_its_plain_form(scenario: Scenario) -> None:
    placed = replace(scenario.wanted(), params={"n": [1]}, above=("f",), holders=("h",), tried=("south",))
    kept = await scenario.places.place(placed)
    again = await scenario.places.place(placed)
    assert again == kept
    assert cast(Any, kept.params) == {"n": [1]}
