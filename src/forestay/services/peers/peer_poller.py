"""Polls the peers: their capacity, the lease, and all runs there in one call; moves work that an unreachable peer can no longer run.

Any number of reconcilers may run this at once: every action is a version-checked write, a send under a key, or a message that may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.flows.events import RunEnded
from forestay.domain.peers.peer import Peer
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, PortError
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.peers.peer import Caller, PeerCalls, PeerRun
from forestay.services.peers.peer_links import PeerLinks
from forestay.services.peers.peer_registry import PeerRegistry
from forestay.services.peers.run_placement import RunPlacement
from forestay.services.shared.quarantine import Quarantine

RECONCILER = "reconciler"
"""The caller of calls that are not made on behalf of a person."""
AT_ONCE = 1000
IDLE = 5.0
"""Seconds between polls while there are no peers."""
ENDED = frozenset({"COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR", "CANCELED"})


@dataclass(slots=True)
class PeerPoller:
    """The service."""

    peers: PeerRegistry
    links: PeerLinks
    places: RunPlacement
    calls: PeerCalls
    engine: FlowEngine
    clock: Clock
    every: float = 1.0
    """Seconds between polls; each polls all peers, except those that another reconciler has just polled."""
    troubled: Callable[[str], None] = lambda _text: None
    batches: int = 0
    """The number of calls for the states of runs."""
    delivered: int = 0
    """The number of completions reported to parent runs."""
    moved: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    alone: bool = False
    """No peer was ever registered."""
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.look()
                except PortError as error:
                    self.troubled(str(error))
                await asyncio.sleep(IDLE if self.alone else self.every)
        finally:
            for task in self._asking.values():
                task.cancel()

    async def look(self) -> None:
        """Poll every peer once. A call to a slow peer does not delay the others."""
        registered, gone = await self.peers.all(), await self.peers.removed()
        for peer in registered:
            task = self._asking.get(peer.name)
            if peer.sends and (task is None or task.done()):
                self._asking[peer.name] = asyncio.create_task(self._ask(peer))
        later = await self.quarantine.each(
            (*registered, *gone), self._move_lapsed, name=lambda peer: f"peer {peer.name}", troubled=self.troubled
        )
        if later is not None:
            raise later
        self.alone = not registered and not gone

    async def settled(self) -> None:
        """Wait for the calls in progress."""
        await asyncio.gather(*self._asking.values())

    async def _ask(self, peer: Peer) -> None:
        try:
            await self.ask(peer)
        except PortError as error:
            with suppress(PortError):
                await self.links.failed(peer.name, str(error))
        except Exception as error:
            self.quarantine.report(f"peer {peer.name}", f"{type(error).__name__}: {error}", self.troubled)

    async def ask(self, peer: Peer) -> None:
        """Get a peer's offer, and the states of all its runs for us. `Transient` if it does not answer."""
        link = await self.links.get(peer.name)
        if link.connected and 0 <= self.clock.now() - link.heard < 500 * self.every:
            return
        placed = await self.places.at(peer.name)
        tenants = {placing.tenant for placing in placed} & peer.sends
        peer_info = await self.calls.hello(peer, Caller(min(tenants or peer.sends), RECONCILER))
        link = await self.links.heard(peer.name, peer_info)
        for tenant in sorted(tenants):
            mine = [placing for placing in placed if placing.tenant == tenant]
            sent = [placing for placing in mine if placing.state is PlacingState.SENT]
            for start in range(0, len(sent), AT_ONCE):
                some = sent[start : start + AT_ONCE]
                self.batches += 1
                who = Caller(tenant, RECONCILER)
                answer = await self.calls.renew(peer, who, [placing.remote_run for placing in some], stamp=link.stamp)
                await self._hear(peer, [(placing, answer.runs.get(placing.remote_run)) for placing in some])
            for placing in mine:
                if placing.state is PlacingState.CHOSEN:
                    await self._send(placing)
        await self._hear_late(peer, link.stamp)

    async def _hear_late(self, peer: Peer, stamp: int) -> None:
        """Record how abandoned runs at a peer ended; cancel those that still run there."""
        left = (await self.places.left_at(peer.name))[:AT_ONCE]
        for tenant in sorted({run.tenant for run in left} & peer.sends):
            mine = [run for run in left if run.tenant == tenant]
            answer = await self.calls.renew(
                peer, Caller(tenant, RECONCILER), [left_run.run for left_run in mine], stamp=stamp
            )
            for left_run in mine:
                run = answer.runs.get(left_run.run)
                if run is None or run.state in ENDED:
                    await self.places.late(peer.name, left_run, run.state if run is not None else "UNKNOWN")
                else:
                    with suppress(NotFound):
                        await self.calls.cancel(peer, Caller(tenant, RECONCILER), left_run.run)

    async def _send(self, placed: Placing) -> None:
        """Send the runs placed there; one that is refused for good has failed."""
        try:
            await self.places.carry_on(placed)
        except (Permanent, NotFound) as error:
            await self._tell([(placed, PeerRun("EXECUTOR_ERROR", {}, str(error)))])
        except PortError as error:
            self.troubled(str(error))

    async def _hear(self, peer: Peer, runs: Iterable[tuple[Placing, PeerRun | None]]) -> None:
        over: list[tuple[Placing, PeerRun]] = []
        for placed, run in runs:
            if run is None:
                # The peer accepted the run but does not know it: its store was lost with all its runs.
                await self._quietly(self.places.move(placed, f"{peer.name} no longer has it"))
            elif run.stopped and not placed.cancelled:
                if run.state in ENDED:
                    self.moved += 1
                    await self._quietly(self.places.move(placed, f"{peer.name} stopped it: the lease had expired"))
            elif run.state in ENDED:
                over.append((placed, run))
            elif placed.cancelled:
                with suppress(NotFound):
                    await self.calls.cancel(peer, Caller(placed.tenant, RECONCILER), placed.remote_run)
        await self._tell(over)

    async def _tell(self, over: Sequence[tuple[Placing, PeerRun]]) -> None:
        """Report the completions of sub-flows, to each parent run all of its own at once, and then close the placements."""
        parents: dict[str, list[tuple[Placing, PeerRun]]] = {}
        for placed, run in over:
            parents.setdefault(placed.parent, []).append((placed, run))
        for parent, ended in parents.items():
            events = [_end(self.clock.now(), placed, run) for placed, run in ended]
            with suppress(NotFound):
                await self.engine.tell_run(parent, events)
            self.delivered += len(events)
            for placed, _ in ended:
                await self.places.over(placed)

    async def _move_lapsed(self, peer: Peer) -> None:
        link = await self.links.get(peer.name)
        if not link.lapsed(self.clock.now(), peer.lease):
            return
        for placed in await self.places.at(peer.name):
            if placed.cancelled:
                gone = PeerRun("CANCELED", {}, f"{peer.name} is unreachable, and its run there has stopped")
                await self._tell([(placed, gone)])
                continue
            self.moved += 1
            await self._quietly(self.places.move(placed, f"{peer.name} was unreachable for longer than its lease"))

    async def _quietly(self, work: Awaitable[Placing]) -> None:
        try:
            await work
        except PortError as error:
            self.troubled(str(error))


def _end(now: int, placed: Placing, run: PeerRun) -> RunEnded:
    well = run.state == "COMPLETE"
    reason = "" if well else run.reason or f"it ended as {run.state} in domain {placed.at}"
    return RunEnded(now, placed.work, placed.index, well, dict(run.outputs) if well else {}, reason)
