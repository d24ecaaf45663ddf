"""Servers and reconcilers of the simulated world: the real services, joined as the real processes join them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from tests.system.simulation.link import Call, LinkLost
from tests.system.simulation.naive import NaiveSubmit, NaiveWriter
from tests.system.simulation.store import Client
from tests.system.simulation.virtual_loop import Actor, VirtualLoop

from forestay.domain.jobs.job_document import AttemptResult
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.submission import Submission
from forestay.domain.pilots.pilot import Heartbeat, Pilot, PilotState
from forestay.ports.errors import PortError, Transient
from forestay.ports.jobs.job_store import Stored, Written
from forestay.services.jobs.callback_sender import CallbackSender
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.jobs.committed_outputs import CommittedOutputs
from forestay.services.jobs.job_completions import CompletionReply, CompletionReport, JobCompletions
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import AcceptedJob, JobSubmitter
from forestay.services.pilots.heartbeats import Heartbeats, HeartbeatSettings
from forestay.services.pilots.orphan_scanner import OrphanScanner
from forestay.services.pilots.pilot_channels import PilotChannel, PilotChannels
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.claim_settings import ClaimSettings
from forestay.services.shared.checked_writer import CheckedWriter

if TYPE_CHECKING:
    from tests.system.simulation.pilot import SimPilot
    from tests.system.simulation.world import World

LEASE = 9
CLAIMS = ClaimSettings(buffer=6, low_water=3, bulk=4, look=4, look_again=4.0, idle=1.0, foreign_buffer=3)
HEARTBEATS = HeartbeatSettings(buckets=2, own=2.0, look=4.0, dead_after=9.0, forget_after=2.0)
DROP_AFTER = 20.0
SCAN_EVERY = 2.0
ORDERS_EVERY = 4.0
PULSE = 0.8
CALLBACKS_EVERY = 3.0


class SimClock:
    """A process's clocks: its wall clock is wrong by some seconds, its steady one starts anywhere and runs a bit off."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self._loop = loop
        self._wrong = rng.uniform(-1500.0, 1500.0)
        self._start = rng.uniform(0.0, 1e6)
        self._rate = rng.uniform(0.98, 1.02)

    def now(self) -> int:
        return int(1_700_000_000_000 + self._wrong + 1000 * self._loop.time())

    def monotonic(self) -> float:
        return self._start + self._rate * self._loop.time()


class SimIds:
    """Names drawn from the seed."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def claim(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def job(self) -> str:
        return f"j-{self._rng.getrandbits(64):016x}"


class _Process:
    """What servers and reconcilers have in common."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.actor = Actor(world.loop, name)
        self.clock = SimClock(world.loop, world.rng("clock", name))
        self.store = Client(world.cluster)
        self.writer: CheckedWriter | NaiveWriter = (
            NaiveWriter(self.store) if world.protocol == "naive" else CheckedWriter(self.store)
        )
        self.release = ClaimReleaser(self.store, self.store, self.writer, self.clock)

    def keep(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a service's loop; one that breaks is a bug."""
        self.actor.spawn(self._kept(loop))

    async def _kept(self, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await loop()
            except Exception as error:
                self.world.auditor.blame("a service's loop broke", f"{self.name} {loop}: {error!r}")
                await asyncio.sleep(1.0)


class SimServer(_Process):
    """One server, from its start until it is killed."""

    def __init__(self, world: World, address: int, life: int) -> None:
        super().__init__(world, f"server-{address}-{life}")
        self.address = address
        self.open_calls: dict[Call, None] = {}
        self.held: dict[str, tuple[PilotChannel, SimPilot]] = {}
        ids = SimIds(world.rng("ids", self.name))
        self.claims = ClaimDispatcher(self.store, self.writer, self.clock, ids, CLAIMS)
        self.completions = JobCompletions(self.store, self.writer, self.clock)
        submit = NaiveSubmit if world.protocol == "naive" else JobSubmitter
        self.submit = submit(self.store, self.clock, ids, listeners=[self.claims], pilots=self.claims)
        self.steer = JobControl(self.store, self.writer, self.clock)
        self.heartbeats = Heartbeats(
            self.store, self.clock, server=self.name, settings=HEARTBEATS, shared_out=self.claims.assign_hash_slots
        )
        self.channels = PilotChannels(
            self.store,
            self.store,
            self.heartbeats,
            self.release,
            self.clock,
            self.completions.held_by,
            every=ORDERS_EVERY,
            pulse=PULSE,
        )
        self.outputs = CommittedOutputs(self.writer)
        self.writer.listeners += [self.claims, self.outputs]
        for loop in (self.claims.run, self.completions.run, self.heartbeats.run, self.channels.run):
            self.keep(loop)

    # -- what pilots ask; the same steps as behind the HTTP interface ------------------------------------------

    async def register(self, pilot: str, host: str, resources: Resources) -> int:
        now = self.clock.now()
        known = Pilot(pilot, "lab", host, "site", 1, resources, LEASE, registered=now, changed=now)
        if not isinstance(await self.store.put_pilot(known, None), Written):
            raise LinkLost("503")
        return LEASE

    async def heartbeat(self, pilot: str, heartbeat: Heartbeat) -> None:
        try:
            await self.heartbeats.heartbeat(pilot, heartbeat)
        except Transient as error:
            raise LinkLost("503") from error

    async def open_channel(self, pilot: SimPilot, session: int) -> PilotChannel:
        try:
            channel = await self.channels.open(pilot.id, session, LEASE)
        except Transient as error:
            raise LinkLost("503") from error
        self.held[f"{pilot.id}:{session}"] = (channel, pilot)
        self.actor.spawn(self._pass_orders(channel, pilot))
        if pilot.actor.dead:
            self.channel_closed(channel)
        return channel

    async def _pass_orders(self, channel: PilotChannel, pilot: SimPilot) -> None:
        while True:
            order = await channel.orders.get()
            pilot.actor.later(0.003, pilot.obey, order)

    def channel_closed(self, channel: PilotChannel) -> None:
        self.held.pop(f"{channel.pilot}:{channel.session}", None)
        self.channels.closed(channel)

    async def claim(self, pilot: str, host: str, free: Resources, most: int, wait: float) -> list[Stored]:
        granted = await self.claims.claim(
            ClaimRequest(pilot=pilot, host=host, tenant="lab", free=free, most=most, batch=1), wait=wait
        )
        self.completions.granted(granted)
        names = [stored.document.specification for stored in granted]
        try:
            specifications = await self.store.get_specifications(names) if names else {}
            if all(name in specifications for name in names):
                return granted
            why = "a specification is missing"
        except PortError as error:
            why = str(error)
        await self.release.release(granted, by="server", reason=why, overlap_possible=False)
        raise LinkLost("503")

    async def end(self, reports: Sequence[CompletionReport], pilot: str) -> Sequence[CompletionReply]:
        return await self.completions.end(reports, pilot=pilot, tenant="lab")

    async def goodbye(self, pilot: str) -> None:
        self.channels.dismiss(pilot)
        try:
            await self.release.of_pilots([pilot], by=pilot, reason="its pilot deregistered", overlap_possible=False)
            self.heartbeats.forget(pilot)
            await self.release.mark(pilot, PilotState.GONE, "it deregistered")
        except PortError as error:
            raise LinkLost("503") from error

    # -- what people ask ---------------------------------------------------------------------------------------

    async def accept(self, submissions: Sequence[Submission], key: str) -> Sequence[AcceptedJob]:
        try:
            return await self.submit.submit(submissions, by="ann", key=key)
        except Transient as error:
            raise LinkLost("503") from error

    async def read_outputs(self, job: str) -> AttemptResult | None:
        try:
            stored = (await self.store.get([job])).get(job)
            return await self.outputs.winner(stored) if stored is not None else None
        except Transient as error:
            raise LinkLost("503") from error

    async def look_at(self, job: str) -> Stored | None:
        try:
            return (await self.store.get([job])).get(job)
        except Transient as error:
            raise LinkLost("503") from error


class SimNotify:
    """Whoever wants to be told of ends; now and then they do not answer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("notify")

    def check(self, url: str) -> str | None:
        return None

    async def post(self, url: str, body: Mapping[str, object], *, delivery: str) -> None:
        await asyncio.sleep(0.01)
        if self.rng.random() < self.world.link.chances.link_request_lost:
            raise Transient("no answer")
        self.world.auditor.notified(str(body["job"]), str(body["state"]), delivery)
        if self.rng.random() < self.world.link.chances.link_answer_lost:
            raise Transient("no answer")


class SimReconciler(_Process):
    """One reconciler, from its start until it is killed."""

    def __init__(self, world: World, number: int, life: int) -> None:
        super().__init__(world, f"reconciler-{number}-{life}")
        self.orphans = OrphanScanner(
            self.store,
            self.store,
            self.clock,
            self.release,
            lease=LEASE,
            every=SCAN_EVERY,
            drop_after=DROP_AFTER,
            alarmed=self._alarmed,
        )
        self.callbacks = CallbackSender(self.store, self.writer, self.clock, SimNotify(world), every=CALLBACKS_EVERY)
        self.keep(self.orphans.run)
        self.keep(self.callbacks.run)

    def _alarmed(self, _text: str) -> None:
        self.world.tally["orphan alarm"] += 1
