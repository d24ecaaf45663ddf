"""A simulated pilot that keeps to the HTTP interface's contract: heartbeats, a channel, claims, payloads, ends kept until settled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.system.simulation.link import Handler, LinkLost
from tests.system.simulation.virtual_loop import Actor

from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, Manifest
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import Heartbeat
from forestay.services.jobs.job_completions import CompletionReport, CompletionStatus
from forestay.services.pilots.pilot_channels import ChannelOrder, PilotChannel

if TYPE_CHECKING:
    from tests.system.simulation.server import SimServer
    from tests.system.simulation.world import World

WAIT = 3.0
CALL = 2.5


@dataclass(eq=False)
class Held:
    """A claim in the pilot's hands, from the answer that brought it until its end is settled."""

    job: JobDocument
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    report: CompletionReport | None = None

    @property
    def claim(self) -> str:
        assert self.job.claim is not None
        return self.job.claim.id


class SimPilot:
    """One pilot, from its start until it is killed or says good-bye."""

    def __init__(self, world: World, number: int, *, strong: bool = False, heir_of: SimPilot | None = None) -> None:
        self.world = world
        self.rng = world.rng("pilot", number)
        self.id = f"p{number}"
        self.host = f"h{number}"
        self.actor = Actor(world.loop, self.id)
        self.slots = self.rng.randint(1, 3)
        self.resources = Resources(cpus=4 if strong else self.rng.choice((2, 3, 4)) * self.slots)
        self.lease = 0.0
        self.lease_until = 0.0
        self.counter = 0
        self.session = 0
        self.tried = 0
        self.address = self.rng.randrange(len(world.servers))
        self.held: dict[str, Held] = {}
        self.inherited: dict[str, Held] = {}
        """Ends that a dead pilot of this host had kept on its disk; sent as they are, and not named in heartbeats."""
        if heir_of is not None:
            kept = heir_of.inherited | heir_of.held
            self.inherited = {claim: held for claim, held in kept.items() if held.report is not None}
            world.tally["end inherited"] += len(self.inherited)
        self.leaving = False
        self.channel: tuple[SimServer, PilotChannel] | None = None
        self.broken: asyncio.Future[None] | None = None
        self.room = asyncio.Event()
        self.ended = asyncio.Event()
        self.actor.spawn(self._live())
        if self.inherited:
            self.ended.set()

    # -- its life ----------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            try:
                sent = self.world.loop.time()
                self.lease = await self._call(lambda server: server.register(self.id, self.host, self.resources))
                break
            except LinkLost:
                # The servers may know it already; a name is used once.
                self.id = f"{self.id}x"
                await asyncio.sleep(0.3)
        self.lease_until = sent + self.lease
        for work in (self._heartbeat_loop(), self._channel_loop(), self._claim_loop(), self._end_loop()):
            self.actor.spawn(work)

    async def _call(self, handler: Handler, patience: float = CALL) -> Any:
        try:
            server = self.world.servers[self.address]
            return await self.world.link.call(self.actor, server, handler, patience=patience)
        except LinkLost:
            self.address = (self.address + 1) % len(self.world.servers)
            raise

    async def _heartbeat_loop(self) -> None:
        while True:
            began = self.world.loop.time()
            self.counter += 1
            heartbeat = Heartbeat(self.counter, self.session, int(self.lease), tuple(self.held))
            every = self.lease / 3
            while self.world.loop.time() < began + every:
                sent = self.world.loop.time()
                try:
                    await self._call(partial(_heartbeat, pilot=self.id, heartbeat=heartbeat), patience=every / 2)
                    self.lease_until = sent + self.lease
                    break
                except LinkLost:
                    await asyncio.sleep(0.2)
            await asyncio.sleep(max(0.0, began + every - self.world.loop.time()))

    # -- the channel -------------------------------------------------------------------------------------------

    async def _channel_loop(self) -> None:
        while True:
            self.tried += 1
            address = self.address
            server = self.world.servers[address]
            try:
                channel = await self._call(lambda server: server.open_channel(self, self.tried))
            except LinkLost:
                await asyncio.sleep(0.05 + 0.2 * self.rng.random())
                continue
            assert isinstance(channel, PilotChannel)
            assert server is not None
            before, self.channel = self.channel, (server, channel)
            self.session = channel.session
            self.broken = self.world.loop.create_future()
            if before is not None:
                self._hang_up(*before)
            if server.actor.dead:
                self.break_channel()
            await self.broken

    def _hang_up(self, server: SimServer, channel: PilotChannel) -> None:
        if not server.actor.dead:
            server.actor.later(0.003, server.channel_closed, channel)

    def break_channel(self) -> None:
        """The connection is gone: both ends see it."""
        if self.channel is not None and self.broken is not None and not self.broken.done():
            self._hang_up(*self.channel)
            self.broken.set_result(None)

    def lose_sight(self) -> None:
        """The server has been silent for long: another channel is opened before this one is closed."""
        if self.broken is not None and not self.broken.done():
            self.broken.set_result(None)

    def obey(self, order: ChannelOrder) -> None:
        held = self.held.get(str(order.data.get("claim")))
        if order.event == "cancel" and held is not None:
            held.stop.set()

    # -- work --------------------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        while True:
            self.room.clear()
            running = [entry for entry in self.held.values() if entry.report is None]
            most = self.slots - len(running)
            if most <= 0 or self.leaving:
                await self.room.wait()
                continue
            free = Resources(cpus=self.resources.cpus - sum(entry.job.resources.cpus for entry in running))
            try:
                granted = await self._call(
                    partial(_claim, pilot=self, free=free, most=most),
                    patience=WAIT + CALL,
                )
            except LinkLost:
                await asyncio.sleep(0.2)
                continue
            assert isinstance(granted, list)
            for stored in granted:
                held = Held(stored.document)
                self.held[held.claim] = held
                self.actor.spawn(self._run(held))
            if not granted:
                await asyncio.sleep(self.rng.random())

    async def _run(self, held: Held) -> None:
        world, job = self.world, held.job
        while self.lease_until < world.loop.time() and not held.stop.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # nothing is begun under a lapsed lease
        if held.stop.is_set():
            self._put(held, AttemptOutcome.FAILURE, "not-started")
            return
        world.auditor.started(job.id, job.token, held.claim)
        seconds = 0.05 + 8.0 * self.rng.random() ** 3
        try:
            async with asyncio.timeout(seconds):
                await held.stop.wait()
        except TimeoutError:
            pass
        if held.stop.is_set():
            self._put(held, AttemptOutcome.FAILURE, "cancelled")
        elif self.rng.random() < world.plan.faulty:
            self._put(held, AttemptOutcome.FAILURE, "exit")
        else:
            path = f"{job.id}/{job.generation}.{job.attempt}.{held.claim[:8]}"
            world.auditor.effect(path, job.id, job.token, held.claim)
            await asyncio.sleep(0.01)  # it may die between the outputs and the end
            self._put(held, AttemptOutcome.OK, "exit", Manifest(path, "0" * 64, 1, 1))

    def _put(self, held: Held, outcome: AttemptOutcome, reason: str, manifest: Manifest | None = None) -> None:
        ending = AttemptResult(
            held.job.token,
            held.claim,
            outcome,
            reason,
            int(outcome is AttemptOutcome.FAILURE),
            host=self.host,
            manifest=manifest,
        )
        self.world.auditor.stopped(held.job.id, held.claim)
        held.report = CompletionReport(held.job.id, ending, log_tail="x" if self.rng.random() < 0.2 else "")
        self.ended.set()
        self.room.set()
        self.world.people.wait_for(held.job.id)

    async def _end_loop(self) -> None:
        while True:
            await self.ended.wait()
            self.ended.clear()
            pending = [entry for entry in (self.inherited | self.held).values() if entry.report is not None]
            if not pending:
                continue
            reports = [entry.report for entry in pending if entry.report is not None]
            try:
                results = await self._call(partial(_end, pilot=self.id, reports=reports), patience=2 * CALL)
            except LinkLost:
                await asyncio.sleep(0.3)
                self.ended.set()
                continue
            assert isinstance(results, list)
            for entry, answer in zip(pending, results, strict=True):
                assert entry.report is not None
                if answer.result is CompletionStatus.UNKNOWN:
                    self.ended.set()
                    continue
                self.world.auditor.answered(entry.report.ending, entry.job.id, answer.result)
                self.world.tally[f"end {answer.result}"] += 1
                self.held.pop(entry.claim, None)
                self.inherited.pop(entry.claim, None)
            if self.ended.is_set():
                await asyncio.sleep(0.3)

    # -- its end -----------------------------------------------------------------------------------------------

    def kill(self, *, silent: bool) -> None:
        """It dies; unless its host vanished with it, the server sees its channel close."""
        if self.channel is not None and not silent:
            self._hang_up(*self.channel)
        self.actor.kill()
        for held in self.held.values():
            self.world.auditor.stopped(held.job.id, held.claim)

    def leave(self) -> None:
        """It says good-bye with whatever it holds, and is gone."""
        self.leaving = True
        self.actor.spawn(self._leave())

    async def _leave(self) -> None:
        for _ in range(5):
            try:
                await self._call(lambda server: server.goodbye(self.id))
                break
            except LinkLost:
                await asyncio.sleep(0.2)
        self.kill(silent=False)


def _heartbeat(server: SimServer, *, pilot: str, heartbeat: Heartbeat) -> Coroutine[Any, Any, Any]:
    return server.heartbeat(pilot, heartbeat)


def _claim(server: SimServer, *, pilot: SimPilot, free: Resources, most: int) -> Coroutine[Any, Any, Any]:
    return server.claim(pilot.id, pilot.host, free, most, WAIT)


def _end(server: SimServer, *, pilot: str, reports: list[CompletionReport]) -> Coroutine[Any, Any, Any]:
    return server.end(reports, pilot)
