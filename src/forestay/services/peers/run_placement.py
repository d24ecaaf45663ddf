"""Places the runs of sub-flows that may run in another domain: chooses the domain, records the choice, and only then starts the run there.

Every step may be repeated by any process at any time: a recorded choice is final, the key makes a repeated send the same run, and a local run has a derived id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.flows.definition.flow import all_tasks
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.peers.peer import Link, Peer
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.domain.peers.routing import ANY, HERE, Offer, Routed, RoutingNeed, route
from forestay.formats.ga4gh.peer_offer import offer_from_tags
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Permanent, Transient
from forestay.ports.flows.flow_engine import FlowEngine, RunStart
from forestay.ports.peers.peer import Caller, PeerCalls
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.placed_runs import placing_name, placing_of
from forestay.services.peers.peer_capacity import PeerCapacity
from forestay.services.peers.peer_links import PeerLinks
from forestay.services.peers.peer_registry import PeerRegistry
from forestay.services.shared.document_update import update_document

OVER = "placing-over"
FRESH = 1.0
"""Seconds for which the state of links is cached."""
RUNTIME = 60.0
"""The assumed runtime in seconds of a job without an expected runtime."""


class LeftRun(NamedTuple):
    """A run at a peer from which its sub-flow was moved."""

    tenant: str
    run: str
    key: str


@dataclass(slots=True)
class RunPlacement:
    """The service."""

    documents: DocumentStore
    flows: FlowStore
    engine: FlowEngine
    peers: PeerRegistry
    links: PeerLinks
    offer: PeerCapacity
    calls: PeerCalls
    clock: Clock
    _known: tuple[float, Mapping[str, Peer], Mapping[str, Link]] = (-FRESH, {}, {})
    _sent: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By domain: the stamp of its last offer, and how many sub-flows were sent there since."""

    async def place(self, wanted: Placing) -> Placing:
        """Place a sub-flow, or continue with its earlier placement.

        `Transient` while no domain can run it, `Permanent` if none ever will.
        """
        stored = (await self.documents.get([placing_name(wanted.run)])).get(placing_name(wanted.run))
        if stored is not None:
            placed = placing_of(stored)
        else:
            chosen = await self._route(wanted)
            placed = await self._change(wanted.run, lambda known: known or replace(wanted, at=chosen))
        with suppress(Transient):  # who follows the peer sends it again
            placed = await self.carry_on(placed)
        return placed

    async def at(self, peer: str) -> Sequence[Placing]:
        """The open placements at a peer; up to a second old."""
        return [placing_of(stored) for stored in await self.documents.find(_kind_at(peer))]

    async def carry_on(self, placed: Placing) -> Placing:
        """Start a placed sub-flow in its domain; `Transient` if it is not known whether it was started."""
        if placed.state is not PlacingState.CHOSEN:
            return placed
        if placed.cancelled and placed.at == HERE:
            return await self.over(placed)
        if placed.at == HERE:
            await self._start_here(placed)
            return await self.over(placed)
        peer = await self.peers.get(placed.at)
        if peer is None:
            raise Transient(f"{placed.at} is no longer a peer")
        link = await self.links.get(peer.name)
        text = await self.flows.text(placed.tenant, placed.flow)
        who = Caller(placed.tenant, placed.owner)
        try:
            run = await self.calls.send(peer, who, key=placed.key, flow=text, params=placed.params, stamp=link.stamp)
        except (Permanent, NotFound) as error:
            # It certainly was not started there, so it need not wait for a lease to end.
            if placed.wanted != ANY:
                raise Permanent(f"{peer.name} refused it: {error}") from error
            return await self.move(placed, f"{peer.name} refused it: {error}", refused=True)
        except Conflict as error:
            raise Transient(str(error)) from error
        return await self._update(placed, lambda known: replace(known, state=PlacingState.SENT, remote_run=run))

    async def move(self, placed: Placing, why: str, *, refused: bool = False) -> Placing:
        """Place a sub-flow anew. Only for one that certainly does not run at its old place; domains that refused it are not chosen again."""
        tried = frozenset({*placed.tried, placed.at})
        to = await self._route(placed, tried=tried)
        if refused and to in tried:
            to = HERE
        if placed.remote_run:
            await self._leave(placed)
        moved = await self._update(placed, lambda known: known.moved(to))
        if moved.number == placed.number + 1 and moved.at == to:
            detail = f"{placed.name}: from {placed.at or 'here'} to {to or 'here'}: {why}"
            await self.links.note(placed.at, f"moved:{placed.key}", detail, self.clock.now())
        with suppress(Transient):
            return await self.carry_on(moved)
        return moved

    async def _leave(self, placed: Placing) -> None:
        """Record an abandoned run, until its end is known; create-only."""
        body = {"tenant": placed.tenant, "run": placed.remote_run, "key": placed.key}
        await self.documents.put([(Document(f"left:{placed.key}", placed.tenant, _left_at(placed.at), body), None)])

    async def left_at(self, peer: str) -> Sequence[LeftRun]:
        """The abandoned runs at a peer whose end is not known yet."""
        bodies = [stored.document.body for stored in await self.documents.find(_left_at(peer))]
        return [LeftRun(str(body["tenant"]), str(body["run"]), str(body["key"])) for body in bodies]

    async def late(self, peer: str, left: LeftRun, how: str) -> None:
        """Record the end of an abandoned run, which does not count."""
        await self.links.note(peer, f"late:{left.key}", f"{left.run} ended as {how}", self.clock.now())
        body = left._asdict() | {"ended": how}

        def known(_stored: StoredDocument | None) -> tuple[Document, None]:
            return Document(f"left:{left.key}", left.tenant, OVER, body), None

        await update_document(
            self.documents, f"left:{left.key}", known, unsure="a late completion could not be recorded"
        )

    async def over(self, placed: Placing) -> Placing:
        """Close a placement: nothing more is done about it."""
        return await self._update(placed, lambda known: replace(known, state=PlacingState.OVER))

    async def cancel(self, run: str) -> None:
        """Request cancellation of a sub-flow for its parent run; the poller of the peer carries it out."""
        stored = (await self.documents.get([placing_name(run)])).get(placing_name(run))
        if stored is None:
            return
        placed = placing_of(stored)
        if placed.state is not PlacingState.OVER and not placed.cancelled:
            await self._change(run, lambda known: replace(known or placed, cancelled=True))

    async def _update(self, placed: Placing, change: Callable[[Placing], Placing]) -> Placing:
        """Change a placement unless it was placed anew meanwhile, or is over; returns its present state."""

        def same(known: Placing | None) -> Placing:
            if known is None or known.number != placed.number or known.state is PlacingState.OVER:
                return known or placed
            return change(known)

        return await self._change(placed.run, same)

    async def _change(self, run: str, change: Callable[[Placing | None], Placing]) -> Placing:
        def changed(stored: StoredDocument | None) -> tuple[Document | None, Placing]:
            before = placing_of(stored) if stored is not None else None
            after = change(before)
            kind = OVER if after.state is PlacingState.OVER else _kind_at(after.at)
            return (
                Document(placing_name(run), after.tenant, kind, after.as_plain()) if after != before else None
            ), after

        unsure = "the placement of the sub-flow could not be stored"
        return await update_document(self.documents, placing_name(run), changed, unsure=unsure)

    async def _start_here(self, placed: Placing) -> None:
        plain = json.loads(await self.flows.text(placed.tenant, placed.flow))
        start = RunStart(
            placed.run,
            placed.tenant,
            placed.owner,
            placed.flow,
            placed.name,
            plain,
            placed.params,
            held=placed.held,
            parent={"run": placed.parent, "work": placed.work, "index": placed.index},
            above=placed.above,
            holders=placed.holders,
        )
        await self.engine.start(start)

    # Choice of the domain

    async def _route(self, wanted: Placing, tried: frozenset[str] = frozenset()) -> str:
        plan = await self.flows.plan(wanted.tenant, wanted.flow)
        if plan.grown:
            if wanted.wanted not in (ANY, HERE):
                raise Permanent("only flows in YAML can run in other domains")
            return HERE
        peers, links = await self._links()
        able = {name: peer for name, peer in peers.items() if wanted.tenant in peer.sends}
        if wanted.wanted not in (ANY, HERE) and wanted.wanted not in able:
            raise Permanent(f"tenant {wanted.tenant} may not use the domain {wanted.wanted}; see `forestay peers`")
        offers = [self._offer(peer, links[name]) for name, peer in able.items()]
        own = await self.offer.offer(wanted.tenant)
        offers.append(replace(own, sent=self._sent_to(HERE, id(own))))
        chosen = route(replace(need_of(plan), domain=wanted.wanted), offers, tried=tried)
        if not isinstance(chosen, Routed):
            if wanted.wanted == ANY:
                return HERE  # its jobs wait in the domain of the person who requested them
            raise Transient("; ".join(f"{name or 'here'}: {why}" for name, why in sorted(chosen.reasons.items())))
        stamp = id(own) if chosen.domain == HERE else links[chosen.domain].stamp
        self._sent[chosen.domain] = (stamp, self._sent_to(chosen.domain, stamp) + 1)
        return chosen.domain

    def _offer(self, peer: Peer, link: Link) -> Offer:
        offer = offer_from_tags(peer.name, link.offer, cost=peer.cost)
        sent = self._sent_to(peer.name, link.stamp)
        up = link.connected and link.stamp > 0 and not link.lapsed(self.clock.now(), peer.lease)
        return replace(offer, sent=sent, failures=link.failures, connected=up)

    def _sent_to(self, domain: str, stamp: int) -> int:
        known = self._sent.get(domain)
        return known[1] if known is not None and known[0] == stamp else 0

    async def _links(self) -> tuple[Mapping[str, Peer], Mapping[str, Link]]:
        now = self.clock.monotonic()
        if now - self._known[0] >= FRESH:
            peers = {peer.name: peer for peer in await self.peers.all()}
            self._known = (now, peers, await self.links.all(peers))
        return self._known[1], self._known[2]


def need_of(plan: FlowPlan) -> RoutingNeed:
    """The needs of a flow's largest job, and the approximate runtime of the flow."""
    jobs = [task.pattern for task in all_tasks(plan.flow.tasks) if isinstance(task.pattern, JobPattern)]
    return RoutingNeed(
        cpus=max((job.resources.cpus for job in jobs), default=0),
        memory=max((job.resources.memory for job in jobs), default=0),
        gpus=max((job.resources.gpus for job in jobs), default=0),
        runtime=sum(float(job.expected_runtime or RUNTIME) for job in jobs) or RUNTIME,
    )


def _kind_at(peer: str) -> str:
    return f"placing@{peer}" if peer else "placing-here"


def _left_at(peer: str) -> str:
    return f"placing-left@{peer}"
