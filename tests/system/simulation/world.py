"""One schedule: a world made from a seed, broken on purpose, left in peace, and judged."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal

from tests.system.simulation.auditor import Auditor, Violation
from tests.system.simulation.faults import QUIET, Chances, Event, draw_chances, draw_events
from tests.system.simulation.link import Link
from tests.system.simulation.people import People
from tests.system.simulation.pilot import SimPilot
from tests.system.simulation.server import SimReconciler, SimServer
from tests.system.simulation.shard import Shard
from tests.system.simulation.store import Cluster
from tests.system.simulation.virtual_loop import Actor, VirtualLoop

from forestay.domain.jobs import lifecycle
from forestay.services.scheduling import candidate_buffers
from forestay.services.shared import loop_slices

Protocol = Literal["checked", "naive", "number"]
PATIENT = 240.0
"""Virtual seconds of quiet after which everything must have come to rest."""
NOTICE = 6.0
"""A pilot that has heard nothing on its channel for so long opens another."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed says about its schedule."""

    servers: int
    reconcilers: int
    pilots: int
    batches: tuple[tuple[float, int], ...]
    """When the client submits, and how many jobs."""
    faulty: float
    """How often a payload ends badly."""
    seconds: float
    """How long things break."""
    chances: Chances
    events: tuple[Event, ...]
    meddling: tuple[float, ...]
    """When the operator does something."""
    reading: tuple[float, ...]


def make_plan(seed: int) -> Plan:
    rng = Random(f"plan:{seed}")
    seconds = (8.0 + 32.0 * rng.random() ** 2) * (4.0 if rng.random() < 0.03 else 1.0)
    jobs = 5 + int(26 * rng.random() ** 2)
    batches: list[tuple[float, int]] = []
    while jobs > 0:
        count = min(jobs, rng.choice((1, 2, 5, 10)))
        batches.append((rng.random() ** 2 * 0.8 * seconds, count))
        jobs -= count
    return Plan(
        servers=rng.randint(2, 4),
        reconcilers=rng.randint(1, 2),
        pilots=3 + int(8 * rng.random() ** 1.5),
        batches=tuple(batches),
        faulty=rng.choice((0.0, 0.1, 0.4)),
        seconds=seconds,
        chances=draw_chances(rng),
        events=tuple(draw_events(rng, seconds)),
        meddling=tuple(rng.random() * seconds for _ in range(rng.choice((0, 0, 3, 8)))),
        reading=tuple(rng.random() * seconds for _ in range(rng.choice((0, 4, 12)))),
    )


@dataclass(slots=True)
class Report:
    """What came of one schedule under one protocol."""

    seed: int
    protocol: str
    violations: list[Violation]
    tally: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    seconds: float = 0.0
    jobs: int = 0
    digest: str = ""


class World:
    """Everything there is in one schedule."""

    def __init__(self, seed: int, protocol: Protocol) -> None:
        self.seed = seed
        self.protocol = protocol
        self.plan = make_plan(seed)
        self.loop = VirtualLoop(self.rng("order"))  # type: ignore[abstract]
        self.tally: Counter[str] = Counter()
        self.auditor = Auditor()
        self.cluster = Cluster(
            Actor(self.loop, "store"),
            self.rng("store"),
            self.tally,
            fields={
                "jobs": self.auditor.job_committed,
                "records": self.auditor.record_committed,
                "specifications": self.auditor.specification_committed,
            },
            number_only=protocol != "checked",
            through_json=seed % 25 == 0,
        )
        self.link = Link(self.loop, self.rng("link"), self.tally)
        self.servers: list[SimServer | None] = [None] * self.plan.servers
        self.reconcilers: list[SimReconciler | None] = [None] * self.plan.reconcilers
        self.pilots: list[SimPilot] = []
        self.people = People(self)
        self.lives = 0
        self.quiet = False

    def rng(self, *names: object) -> Random:
        """A stream of chance of its own for each part, so that one part's draws do not move another's."""
        return Random(":".join(map(str, (self.seed, *names))))

    # -- the course of a schedule ------------------------------------------------------------------------------

    def run(self) -> Report:
        with _small_sizes():
            self.loop.run(self._course())
            for task in self.loop.failed_tasks():
                self.auditor.blame("a task broke", f"{task.get_coro()}: {task.exception()!r}")
            self.auditor.judge(at_rest=self.protocol == "checked")
        self.tally += self.auditor.tally
        turns, seconds = self.loop.turns, self.loop.time()
        self.loop.close()
        return Report(
            self.seed,
            self.protocol,
            self.auditor.violations,
            self.tally,
            turns,
            seconds,
            len(self.auditor.accepted),
            self._digest(),
        )

    def _digest(self) -> str:
        """The same for the same schedule, wherever and whenever it is run."""
        stands = sorted(self.auditor.documents.items())
        seen = (self.loop.turns, self.loop.time(), stands, sorted(self.auditor.records), sorted(self.tally.items()))
        return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]

    async def _course(self) -> None:
        plan, world = self.plan, self.loop.world
        for address in range(plan.servers):
            self.start_server(address)
        for number in range(plan.reconcilers):
            self.start_reconciler(number)
        for _ in range(plan.pilots):
            self.start_pilot()
        for place, (at, count) in enumerate(plan.batches):
            world.later(at, self.people.submit, f"key-{place}", count)
        for at in plan.meddling:
            world.later(at, self.people.interfere)
        for at in plan.reading:
            world.later(at, self.people.consume)
        world.later(0.5, self._loosen)
        for event in plan.events:
            world.later(event.at, self._happen, event)
        await asyncio.sleep(plan.seconds)
        await self._calm_down()

    def _loosen(self) -> None:
        self.cluster.chances = self.link.chances = self.plan.chances

    async def _calm_down(self) -> None:
        """No more faults; what is gone is replaced; then everything must come to rest."""
        self.quiet = True
        self.cluster.chances = self.link.chances = QUIET
        self.cluster.outage = False
        for shard in self.cluster.shards.values():
            shard.down = False
            shard.heal(self.loop.time())
        self.link.cut.clear()
        for address, server in enumerate(self.servers):
            if server is None:
                self.start_server(address)
            else:
                server.actor.thaw()
        for number, reconciler in enumerate(self.reconcilers):
            if reconciler is None:
                self.start_reconciler(number)
            else:
                reconciler.actor.thaw()
        alive = [pilot for pilot in self.pilots if not pilot.actor.dead]
        for pilot in alive:
            pilot.actor.thaw()
        strong = [pilot for pilot in alive if pilot.resources.cpus >= 4]
        for _ in range(2 - len(strong)):
            self.start_pilot(strong=True)
        if self.protocol != "checked":
            # What the others break they have broken by now; they need not come to rest.
            await asyncio.sleep(1.0)
            return
        since = self.loop.time()
        letting_go = self.people.actor.spawn(self.people.let_all_go())
        while self.loop.time() - since < PATIENT:
            await asyncio.sleep(2.0)
            if letting_go.done() and not self.people.submitting and not self.auditor.unsettled():
                break
        for _ in range(10):
            self.people.consume()
        await asyncio.sleep(1.0)

    # -- who comes and goes ------------------------------------------------------------------------------------

    def start_server(self, address: int) -> None:
        self.lives += 1
        self.servers[address] = SimServer(self, address, self.lives)

    def start_reconciler(self, number: int) -> None:
        self.lives += 1
        self.reconcilers[number] = SimReconciler(self, number, self.lives)

    def start_pilot(self, *, strong: bool = False, heir_of: SimPilot | None = None) -> None:
        pilot = SimPilot(self, len(self.pilots), strong=strong, heir_of=heir_of)
        self.pilots.append(pilot)

    # -- what breaks -------------------------------------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        if self.quiet:
            return
        handler: Any = getattr(self, "_" + event.kind.replace(" ", "_"))
        if handler(event) is not False:
            self.tally[event.kind] += 1

    def _store_outage(self, event: Event) -> None:
        self.cluster.outage = True
        self.loop.world.later(event.lasts, setattr, self.cluster, "outage", False)

    def _shards(self, pick: float) -> list[Shard[Any]]:
        """Some of the shards, as they may lie together on one node; mostly the jobs."""
        shards = self.cluster.shards
        if pick < 0.5:
            return [shards["jobs"]]
        names = sorted(shards)
        return list(shards.values()) if pick > 0.8 else [shards[names[int(pick * 1000) % len(names)]]]

    def _primary_crash(self, event: Event) -> bool:
        hit = [
            shard
            for shard in self._shards(event.pick)
            if shard.replica is not None and not shard.cut and not shard.down
        ]
        for shard in hit:
            shard.down = True
            self.loop.world.later(event.lasts, self._crashed, shard)
        return bool(hit)

    def _crashed(self, shard: Shard[Any]) -> None:
        if shard.down:
            shard.down = False
            shard.promote(keep_old=False)
            self.loop.world.later(2.0, shard.heal, self.loop.time() + 2.0)

    def _primary_cut_off(self, event: Event) -> bool:
        hit = [shard for shard in self._shards(event.pick) if not shard.down and shard.cut_off()]
        for shard in hit:
            self.loop.world.later(event.lasts * 0.3, self._replaced, shard, event)
        return bool(hit)

    def _replaced(self, shard: Shard[Any], event: Event) -> None:
        if shard.cut:
            if event.pick * 997 % 1 < 0.85:
                shard.promote(keep_old=event.pick * 101 % 1 < 0.7)
            self.loop.world.later(event.lasts * 0.7, self._heal, shard)

    def _heal(self, shard: Shard[Any]) -> None:
        shard.heal(self.loop.time())

    def _server_kill(self, event: Event) -> bool:
        address = int(event.pick * len(self.servers))
        server = self.servers[address]
        if server is None:
            return False
        server.actor.kill()
        self.link.broken(server)
        for channel, pilot in list(server.held.values()):
            if pilot.channel is not None and pilot.channel[1] is channel:
                pilot.actor.later(0.003, pilot.lose_sight)
        self.servers[address] = None
        self.loop.world.later(event.lasts, self._restart_server, address)
        return True

    def _restart_server(self, address: int) -> None:
        if self.servers[address] is None:
            self.start_server(address)

    def _server_pause(self, event: Event) -> bool:
        server = self.servers[int(event.pick * len(self.servers))]
        if server is None or server.actor.frozen:
            return False
        server.actor.freeze()
        if event.lasts > NOTICE:
            for channel, pilot in server.held.values():
                if pilot.channel is not None and pilot.channel[1] is channel:
                    pilot.actor.later(NOTICE, pilot.lose_sight)
        self.loop.world.later(event.lasts, server.actor.thaw)
        return True

    def _reconciler_kill(self, event: Event) -> bool:
        number = int(event.pick * len(self.reconcilers))
        reconciler = self.reconcilers[number]
        if reconciler is None:
            return False
        reconciler.actor.kill()
        self.reconcilers[number] = None
        self.loop.world.later(event.lasts, self._restart_reconciler, number)
        return True

    def _restart_reconciler(self, number: int) -> None:
        if self.reconcilers[number] is None:
            self.start_reconciler(number)

    def _reconciler_pause(self, event: Event) -> bool:
        reconciler = self.reconcilers[int(event.pick * len(self.reconcilers))]
        if reconciler is None or reconciler.actor.frozen:
            return False
        reconciler.actor.freeze()
        self.loop.world.later(event.lasts, reconciler.actor.thaw)
        return True

    def _pilot(self, event: Event) -> SimPilot | None:
        alive = [pilot for pilot in self.pilots if not pilot.actor.dead and not pilot.leaving]
        return alive[int(event.pick * len(alive))] if alive else None

    def _pilot_kill(self, event: Event, *, silent: bool = False) -> bool:
        pilot = self._pilot(event)
        if pilot is None:
            return False
        pilot.kill(silent=silent)
        if event.pick * 211 % 1 < 0.7:
            again = partial(self.start_pilot, heir_of=pilot if event.pick * 499 % 1 < 0.5 else None)
            self.loop.world.later(1.0 + 5.0 * event.pick, again)
        return True

    def _pilot_vanish(self, event: Event) -> bool:
        return self._pilot_kill(event, silent=True)

    def _site_lost(self, event: Event) -> bool:
        """The power of a whole site fails: nearly all pilots vanish at the same moment."""
        gone = [pilot for pilot in self.pilots if not pilot.actor.dead and pilot.rng.random() < 0.5 + event.pick / 2]
        for pilot in gone:
            pilot.kill(silent=True)
        for place in range(len(gone)):
            self.loop.world.later(3.0 + place, self.start_pilot)
        return bool(gone)

    def _pilot_pause(self, event: Event) -> bool:
        pilot = self._pilot(event)
        if pilot is None or pilot.actor.frozen:
            return False
        pilot.actor.freeze()
        self.loop.world.later(event.lasts, pilot.actor.thaw)
        return True

    def _pilot_goodbye(self, event: Event) -> bool:
        pilot = self._pilot(event)
        if pilot is None or pilot.actor.frozen:
            return False
        pilot.leave()
        return True

    def _channel_break(self, event: Event) -> bool:
        pilot = self._pilot(event)
        if pilot is None or pilot.channel is None:
            return False
        pilot.break_channel()
        return True

    def _partition(self, event: Event) -> bool:
        pilot = self._pilot(event)
        if pilot is None:
            return False
        pairs = [
            (pilot.actor.name, address) for address in range(len(self.servers)) if event.pick * (3 + address) % 1 < 0.7
        ]
        self.link.cut.update(pairs)
        self.loop.world.later(event.lasts, self.link.cut.difference_update, pairs)
        return True


@contextmanager
def _small_sizes() -> Iterator[None]:
    """Stories are folded early and pages are short, so that few jobs are enough to meet chapters and cursors.

    Work gives way to others by the real time that it took: on a busy machine a schedule would be another one.
    """
    before = lifecycle.KEEP, candidate_buffers.LEAST, loop_slices.SLICE
    lifecycle.KEEP, candidate_buffers.LEAST, loop_slices.SLICE = 8, 3, float("inf")
    try:
        yield
    finally:
        lifecycle.KEEP, candidate_buffers.LEAST, loop_slices.SLICE = before


def run_schedule(seed: int, protocol: Protocol = "checked") -> Report:
    """One schedule from beginning to end."""
    return World(seed, protocol).run()
