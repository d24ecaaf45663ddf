"""Two domains, each with its own store, Temporal namespace, server, reconciler and orchestrator: sub-flows of one run in the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.apps.compose.loops import run_loops, stop
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.domain.flows.events import VerbKind
from forestay.domain.peers.peer import Peer
from forestay.ports.errors import Conflict, Permanent, Transient
from forestay.ports.flows.flow_engine import RunQuery
from forestay.ports.jobs.job_store import JobQuery
from forestay.ports.peers.peer import Caller, PeerCalls, PeerInfo, Renewed
from forestay.services.peers.peer_links import EVENT
from forestay.services.peers.peer_poller import PeerPoller

pytestmark = pytest.mark.live
FLOW = """
forestay: 1
name: above
flows:
  inner:
    name: inner
    params: {n: null}
    tasks: {one: {command: [echo, "${params.n}"], expected_runtime: 1 s}}
    outputs: {twice: "${params.n}", code: "${tasks.one.exit_code}"}
tasks:
  each: {flow: inner, domain: WHERE, params: {n: "${x}"}, scatter: {x: [1, 2, 3]}}
  after: {after: each, command: [echo, done]}
"""
ONE = """
forestay: 1
name: one-above
flows:
  inner: {name: inner, tasks: {alone: {command: [echo, "1"], expected_runtime: 1 s}}, outputs: {code: "${tasks.alone.exit_code}"}}
tasks:
  go: {flow: inner, domain: WHERE}
outputs: {code: "${tasks.go.outputs.code}"}
"""
SHORT, LONG = 5, 60
"""Seconds of the lease: for the first test, which waits for its end, and for all others."""
SEND = """
forestay: 1
name: sent
tasks: {job: {command: [echo, "1"]}}
"""


@dataclass
class Cut:
    """The way to the other domain, which can be cut."""

    calls: PeerCalls
    cut: bool = False

    def _pass(self) -> None:
        if self.cut:
            raise Transient("the line is cut")

    async def hello(self, peer: Peer, who: Caller) -> PeerInfo:
        self._pass()
        return await self.calls.hello(peer, who)

    async def send(self, peer: Peer, who: Caller, **more: Any) -> str:
        self._pass()
        return await self.calls.send(peer, who, **more)

    async def renew(self, peer: Peer, who: Caller, runs: Sequence[str], *, stamp: int) -> Renewed:
        self._pass()
        return await self.calls.renew(peer, who, runs, stamp=stamp)

    async def cancel(self, peer: Peer, who: Caller, run: str) -> None:
        self._pass()
        await self.calls.cancel(peer, who, run)

    async def goodbye(self, peer: Peer, who: Caller) -> None:
        self._pass()
        await self.calls.goodbye(peer, who)


@dataclass
class Domains:
    """North sends, south takes."""

    north: RunSite
    south: RunSite
    reconciler: ReconcilerComponents
    """North's."""
    line: Cut

    @property
    def follow(self) -> PeerPoller:
        assert self.reconciler.follow is not None
        return self.reconciler.follow

    async def peer(self) -> Peer:
        peer = await self.follow.peers.get("south")
        assert peer is not None
        return peer

    async def runs(self) -> int:
        """Runs of north's that were ever started in the south."""
        count: int = await self.south.engine.count(RunQuery(TENANT, owner="peer:north"))
        return count

    async def events(self) -> list[str]:
        records = await self.north.server.services.components.store.find_records(kind=EVENT, job="south")
        return [str(record.body["what"]) for record in records]


@asynccontextmanager
async def kept(site: RunSite) -> AsyncIterator[ReconcilerComponents]:
    """What a reconciler does about peers."""
    async with site.domain.reconciler() as reconciler:
        assert reconciler.follow is not None
        reconciler.follow.every = 0.2
        assert reconciler.leases is not None
        reconciler.leases.held = 1
        loops = {name: loop for name, loop in reconciler.loops().items() if name in ("peers", "leases")}
        task = asyncio.create_task(run_loops(loops))
        try:
            yield reconciler
        finally:
            await stop(task)


@pytest.fixture(scope="module")
async def domains(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Domains]:
    folders = [tmp_path_factory.mktemp(name) for name in ("north", "south")]
    hosts: dict[str, Any] = {"peer_hosts": ("127.0.0.1",)}
    async with (
        run_site("sqlite", folders[0], pilots=1, **hosts) as north,
        run_site("sqlite", folders[1], pilots=3, **hosts) as south,
        kept(north) as reconciler,
        kept(south),
    ):
        assert reconciler.follow is not None
        line = Cut(reconciler.follow.calls)
        reconciler.follow.calls = reconciler.follow.places.calls = line
        both = Domains(north, south, reconciler, line)
        await introduce(both, SHORT)
        await linked(both)
        yield both


async def introduce(both: Domains, lease: int) -> None:
    """Let each know the other. A lease is made longer here, never shorter: who runs things still counts by the old one."""
    north, south = both.north.server, both.south.server
    ours, theirs = north.services.components.peers, south.services.components.peers
    await theirs.put(Peer("north", north.url, ours.tokens.public, {TENANT: TENANT}, lease=lease))
    await ours.put(Peer("south", south.url, theirs.tokens.public, sends=frozenset({TENANT}), lease=lease))


async def linked(both: Domains) -> None:
    async def known() -> bool:
        return (await both.follow.links.get("south")).connected

    await until(known, "the link")


@asynccontextmanager
async def busy_north(domains: Domains) -> AsyncIterator[None]:
    """Every slot of the north is taken."""
    domains.north.hold_back = lambda claim: bool(claim["name"] == "blocker")
    blocked = await domains.north.start(
        "{forestay: 1, name: block, tasks: {blocker: {command: [echo], scatter: {x: [1, 2, 3, 4]}}}}"
    )

    async def no_room() -> bool:
        orchestrator = domains.north.orchestrator
        assert orchestrator is not None
        link = await domains.follow.links.get("south")
        known = link.connected and not link.failures
        return known and len(domains.north.kept) == 4 and not (await orchestrator.places.offer.offer(TENANT)).free

    await until(no_room, "the north to know that it is busy")
    domains.north.ran.clear()
    domains.south.ran.clear()
    yield
    domains.north.hold_back = lambda _claim: False
    await domains.north.let_go()
    await domains.north.ended(blocked)


async def test_a_domain_that_is_away_past_its_lease_stops_and_the_sub_flow_goes_elsewhere(domains: Domains) -> None:
    domains.south.hold_back = lambda _claim: True
    before = await domains.runs()
    try:
        async with busy_north(domains):
            run = await domains.north.start(ONE.replace("WHERE", "any").replace("one-above", "moves"))
            await domains.south.kept_some()
            moved = domains.follow.moved
            domains.line.cut = True

            async def gone() -> bool:
                return domains.follow.moved > moved

            await until(gone, "the sub-flow to leave the south", 60)
            await stopped_in_the_south(domains)
        assert (await domains.north.result(run))["outputs"] == {"code": 0}
        assert domains.north.ran.count("alone") == 1
        for pilot, claim in domains.south.kept:
            await pilot.end(claim)
        ends = [state async for state in _states(domains, "alone")]
        assert ends[-1] == "cancelled", "what comes late counts for nothing"
        assert await domains.runs() == before + 1
        assert any(event.startswith("moved:") for event in await domains.events())
    finally:
        domains.line.cut = False
        domains.south.kept.clear()
        domains.south.hold_back = lambda _claim: False
        await introduce(domains, LONG)


@pytest.mark.ledger("P0-27", "P0-28")
async def test_sub_flows_run_in_the_other_domain_and_their_ends_come_in_batches(domains: Domains) -> None:
    await linked(domains)
    before, runs = domains.follow.batches, await domains.runs()
    domains.north.ran.clear()
    domains.south.ran.clear()
    run = await domains.north.start(FLOW.replace("WHERE", "south"))
    assert (await domains.north.result(run))["outcome"] == "completed"
    assert sorted(domains.south.ran) == ["one", "one", "one"]
    assert domains.north.ran == ["after"]
    assert domains.follow.delivered >= 3
    looks = domains.follow.batches - before
    assert looks >= 1
    assert await domains.runs() == runs + 3
    assert (await domains.events())[0] == "connected"
    offer = (await domains.follow.links.get("south")).offer
    assert offer["forestay.slots"] == "12", "what the south has was told with its stamps"


@pytest.mark.ledger("P0-33")
async def test_a_single_job_goes_where_there_is_room_for_it(domains: Domains) -> None:
    """A job travels as a flow of one task."""
    async with busy_north(domains):
        run = await domains.north.start(ONE.replace("WHERE", "any"))
        assert (await domains.north.result(run))["outputs"] == {"code": 0}
        assert domains.south.ran == ["alone"]


async def stopped_in_the_south(domains: Domains) -> None:
    """A search shows it a second or so later."""

    async def stopped() -> bool:
        return not await domains.south.engine.count(RunQuery(TENANT, owner="peer:north", open=True))

    await until(stopped, "the runs in the south to end")


async def _states(domains: Domains, name: str) -> AsyncIterator[str]:
    """How the jobs of this name stand in the south, the oldest first."""
    page = await domains.south.server.services.components.store.search(
        JobQuery(tenant=TENANT, anyof={"name": [name]}), sort="created"
    )
    for job in page.jobs:
        yield job.document.state.value


async def test_the_end_of_the_run_above_ends_what_it_sent(domains: Domains) -> None:
    await linked(domains)
    domains.south.hold_back = lambda _claim: True
    try:
        run = await domains.north.start(ONE.replace("WHERE", "south").replace("one-above", "completions"))
        await domains.south.kept_some()
        await domains.north.verb(run, VerbKind.FORCE_FAIL, reason="enough")
        assert (await domains.north.ended(run)).state == "failed"

        await stopped_in_the_south(domains)
    finally:
        domains.south.kept.clear()
        domains.south.hold_back = lambda _claim: False


async def test_a_key_is_one_run_and_an_old_stamp_starts_nothing(domains: Domains) -> None:
    peer, calls, who = await domains.peer(), domains.line.calls, Caller(TENANT, "ada")
    peer_info = await calls.hello(peer, who)
    sends = [calls.send(peer, who, key="k:1", flow=SEND, params={}, stamp=peer_info.stamp) for _ in range(3)]
    runs = set(await asyncio.gather(*sends))
    assert len(runs) == 1
    old = peer_info.stamp - 1000 * peer.lease
    assert await calls.send(peer, who, key="k:1", flow=SEND, params={}, stamp=old) in runs, "it was begun before"
    with pytest.raises(Conflict, match="stamp"):
        await calls.send(peer, who, key="k:2", flow=SEND, params={}, stamp=old)
    with pytest.raises(Conflict, match="another"):
        await calls.send(peer, who, key="k:1", flow=SEND.replace("sent", "other"), params={}, stamp=peer_info.stamp)
    with pytest.raises(Permanent):
        await calls.send(peer, who, key="k:3", flow="{}", params={}, stamp=peer_info.stamp)
    with pytest.raises(Transient):
        await calls.hello(replace(peer, key=domains.follow.peers.tokens.public), who)
    unknown = await calls.renew(peer, who, ["nobody"], stamp=peer_info.stamp)
    assert unknown.runs == {}


@pytest.mark.ledger("P0-27")
async def test_good_bye_stops_what_was_sent(domains: Domains) -> None:
    peer, calls, who = await domains.peer(), domains.line.calls, Caller(TENANT, "ada")
    domains.line.cut = True
    domains.south.hold_back = lambda _claim: True
    try:
        peer_info = await calls.hello(peer, who)
        run = await calls.send(peer, who, key="bye:1", flow=SEND, params={}, stamp=peer_info.stamp)
        await domains.south.kept_some()
        await calls.goodbye(peer, who)

        async def stopped() -> bool:
            return bool((await domains.south.engine.describe(run)).ended)

        await until(stopped, "the run to end")
    finally:
        domains.south.kept.clear()
        domains.south.hold_back = lambda _claim: False
        domains.line.cut = False
