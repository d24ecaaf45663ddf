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
from forestay.domain.flows.events import CaseEnded
from forestay.domain.peers.peer import GRACE, Peer
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.domain.peers.routing import HERE, Offer
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.formats.ga4gh.peer_offer import offer_tags
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.flows.flow_engine import CaseStart, FlowEngine
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
        return Renewed(stamp, {one: self.runs[one] for one in runs if one in self.runs})

    async def cancel(self, _peer: Peer, _who: Caller, run: str) -> None:
        self.cancelled.append(run)

    async def goodbye(self, _peer: Peer, _who: Caller) -> None: ...


@dataclass
class Engine:
    """Notes what is started here, and what cases are told."""

    started: list[CaseStart] = field(default_factory=list)
    told: list[tuple[str, Sequence[CaseEnded]]] = field(default_factory=list)
    gone: bool = False

    async def start(self, start: CaseStart) -> bool:
        self.started.append(start)
        return True

    async def tell_case(self, case: str, events: Sequence[CaseEnded]) -> None:
        if self.gone:
            raise NotFound("it has ended")
        self.told.append((case, events))


@dataclass
class House:
    places: RunPlacement
    follow: PeerPoller
    line: Line
    engine: Engine
    clock: LaterClock
    flow: str

    def wanted(self, number: int = 1, domain: str = "any") -> Placing:
        """Of cases above that have two sub-flows each."""
        parent = f"above-{number // 2}"
        return Placing(f"case-{number}", TENANT, "ada", parent, "go@1", number % 2, self.flow, "inner", domain)

    async def look(self, later: int = 1000) -> None:
        self.clock.ahead += later
        await self.follow.look()
        await self.follow.settled()

    async def state(self, number: int = 1) -> Placing:
        return await self.places.place(self.wanted(number))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
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
    made = House(places, PeerPoller(peers, links, places, line, flow_engine, clock), line, engine, clock, version)
    await made.look()
    try:
        yield made
    finally:
        await store.close()


async def test_ends_are_heard_by_one_call_and_told_to_each_case_together(house: House) -> None:
    placed = [await house.places.place(house.wanted(number)) for number in range(4)]
    assert {one.at for one in placed} == {"south"}
    assert {one.state for one in placed} == {PlacingState.SENT}
    for one in placed:
        house.line.runs[one.run] = PeerRun("COMPLETE", {"n": one.index}, "")
    await house.look()
    assert house.line.asked == [4]
    assert sorted((case, len(events)) for case, events in house.engine.told) == [("above-0", 2), ("above-1", 2)]
    assert all(one.well and one.outputs == {"n": one.index} for _, events in house.engine.told for one in events)
    await house.look()
    assert house.line.asked == [4], "what is over is not asked after"


async def test_a_repeat_changes_nothing_and_a_lost_request_is_sent_again_under_its_key(house: House) -> None:
    house.line.away = True
    placed = await house.places.place(house.wanted())
    assert (placed.at, placed.state) == ("south", PlacingState.CHOSEN)
    house.line.away = False
    await house.look()
    assert await house.state() == replace(placed, state=PlacingState.SENT, run="run-case-1:1")
    assert house.line.sent == ["case-1:1"]
    assert house.engine.started == []


async def test_a_peer_that_is_away_keeps_its_work_for_its_lease_and_the_time_to_stop(house: House) -> None:
    await house.places.place(house.wanted())
    heard = (await house.places.links.get("south")).heard
    house.line.away = True
    await house.look(heard + 10_000 + GRACE - 500 - house.clock.now())
    assert (await house.state()).at == "south"
    await house.look(600)
    (started,) = house.engine.started
    assert (started.case, started.parent) == ("case-1", {"case": "above-0", "work": "go@1", "index": 1})
    moved = await house.state()
    assert (moved.at, moved.number, moved.state) == (HERE, 2, PlacingState.OVER)
    house.line.away = False
    house.line.runs["run-case-1:1"] = PeerRun("COMPLETE", {}, "")
    await house.look()
    assert house.engine.told == [], "an end that comes late counts for nothing"
    events = await house.places.links.store.find_records(kind=EVENT, job="south")
    assert [str(one.body["what"]) for one in events][-2:] == ["moved:case-1:1", "late:case-1:1"]
    assert await house.places.left_at("south") == []


async def test_why_a_peer_never_answered_is_kept_once(house: House) -> None:
    links = house.places.links
    for _ in range(AWAY + 2):
        await links.failed("west", "nobody answers")
    (event,) = await links.store.find_records(kind=EVENT, job="west")
    assert (event.body["what"], event.body["detail"]) == ("disconnected", "nobody answers")


async def test_what_a_peer_stopped_for_its_lease_has_not_failed(house: House) -> None:
    placed = await house.places.place(house.wanted())
    house.line.runs[placed.run] = PeerRun("CANCELING", {}, "", stopped=True)
    await house.look()
    assert (await house.state()).number == 1, "it may still run"
    house.line.runs[placed.run] = PeerRun("CANCELED", {}, "", stopped=True)
    await house.look()
    again = await house.state()
    assert (again.number, again.tried) == (2, ("south",))
    assert house.engine.told == []


async def test_a_peer_that_lost_its_store_is_sent_it_anew(house: House) -> None:
    placed = await house.places.place(house.wanted(domain="south"))
    del house.line.runs[placed.run]
    await house.look()
    assert house.line.sent == ["case-1:1", "case-1:2"]


async def test_a_run_that_still_goes_on_where_it_was_left_is_ended(house: House) -> None:
    await house.places.place(house.wanted())
    house.line.away = True
    await house.look(30_000)
    assert len(house.engine.started) == 1
    house.line.away = False
    await house.look()
    assert house.line.cancelled == ["run-case-1:1"]


async def test_what_a_peer_refuses_runs_here_unless_that_peer_was_asked_for(house: House) -> None:
    house.line.refuses = True
    placed = await house.places.place(house.wanted(1))
    assert (placed.at, placed.number) == (HERE, 2)
    assert [one.case for one in house.engine.started] == ["case-1"]
    with pytest.raises(Permanent, match="refused"):
        await house.places.place(house.wanted(2, "south"))
    await house.look()
    ((case, (end,)),) = house.engine.told
    assert (case, end.well) == ("above-1", False)
    with pytest.raises(Permanent, match="may not use"):
        await house.places.place(house.wanted(3, "nowhere"))


async def test_a_named_domain_is_waited_for(house: House) -> None:
    house.line.away = True
    for _ in range(3):
        await house.look()
    house.places._known = (-10.0, {}, {})
    with pytest.raises(Transient, match="not connected"):
        await house.places.place(house.wanted(1, "south"))
    assert (await house.places.place(house.wanted(2))).at == HERE, "any may stay"


async def test_the_case_above_calls_it_off(house: House) -> None:
    one, two = [await house.places.place(house.wanted(number)) for number in (0, 1)]
    await house.places.cancel(one.case)
    await house.places.cancel("nobody")
    await house.look()
    assert house.line.cancelled == [one.run]
    house.line.runs[one.run] = PeerRun("CANCELED", {}, "cancelled")
    await house.look()
    ((_, (end,)),) = house.engine.told
    assert (end.index, end.well) == (0, False)
    await house.places.cancel(two.case)
    house.line.away = True
    await house.look(30_000)
    assert house.engine.started == [], "what is not wanted any more is not begun elsewhere"
    assert [events[0].index for _, events in house.engine.told] == [0, 1]


async def test_a_case_above_that_has_ended_needs_to_hear_nothing(house: House) -> None:
    placed = await house.places.place(house.wanted())
    house.line.runs[placed.run] = PeerRun("EXECUTOR_ERROR", {}, "bad")
    house.engine.gone = True
    await house.look()
    assert (await house.state()).state is PlacingState.OVER


async def test_a_placing_survives_its_plain_form(house: House) -> None:
    placed = replace(house.wanted(), params={"n": [1]}, above=("f",), holders=("h",), tried=("south",))
    kept = await house.places.place(placed)
    again = await house.places.place(placed)
    assert again == kept
    assert cast(Any, kept.params) == {"n": [1]}
