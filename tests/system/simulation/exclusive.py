"""Random schedules against the promises of exclusive use: no two running jobs share a device, never are more seats used than there are, never more than a quota allows.

Each schedule is a seed. Seats and quotas: several servers run the real services over stores in memory; after every store call another coroutine may go on, answers are lost,
servers are killed in the middle, jobs lose their pilots, and every server sweeps without waiting. For quotas, searches show an old state, too. Devices: the real code of pilot and guard over a kernel in memory, with kills of
pilots, guards and payloads at every step and with what payloads leave behind.

    python -m tests.system.simulation.exclusive --schedules 10000
"""

from __future__ import annotations

import argparse
import itertools
import sys
import types
from collections import Counter
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, cast
from unittest import mock

from forestay.domain.jobs.claim import claim
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.requirements import licences_of
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.scheduling.quota import (
    QuotaKind,
    QuotaLedger,
    QuotaLimits,
    QuotaPolicy,
    QuotaSubject,
    sum_of,
    use_of,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import (
    Conflicted,
    DocumentChange,
    JobPage,
    JobQuery,
    JobStore,
    Stored,
    Unknown,
    Version,
    WriteResult,
    Written,
)
from forestay.services.scheduling.licence_seats import LicenceSeats, WantedSeats, document_of, licence_from
from forestay.services.scheduling.quota_ledgers import KIND as LEDGER
from forestay.services.scheduling.quota_ledgers import QuotaLedgers, ledger_from
from forestay.services.scheduling.quota_ledgers import document_name as ledger_name
from forestay.services.scheduling.quota_policies import KIND as POLICY
from forestay.services.scheduling.quota_policies import QuotaPolicies
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import CheckedWriter, ProposedWrite, WriteApplied
from forestay_pilot.process import device_locks, devices
from forestay_pilot.process.devices import Device, HostDevices

LOST = 0.08
"""How often the answer to a write is lost, whether it took effect or not."""
KILLED = 0.02
STEPS = 160
Work = Coroutine[Any, Any, None]


@types.coroutine
def turn() -> Generator[None, None, None]:
    """Let somebody else go on."""
    yield


class StillClock(Clock):
    """Time does not matter here: what is old enough is decided by the sweep."""

    def now(self) -> int:
        return 1_000_000

    def monotonic(self) -> float:
        return 1000.0


@dataclass
class Shelf:
    """Documents with versions, in memory; fills both stores as far as the services use them."""

    rng: Random
    entries: dict[str, tuple[Any, int]] = field(default_factory=dict)
    counter: Any = field(default_factory=lambda: itertools.count(1))
    lost: float = LOST

    async def write_each(self, changes: Iterable[tuple[str, Any, Version | None]]) -> list[WriteResult]:
        results: list[WriteResult] = []
        for name, content, expected in changes:
            await turn()
            if self.rng.random() < self.lost / 2:
                results.append(Unknown("the request was lost"))
                continue
            known = self.entries.get(name)
            if (known[1] if known else None) != (expected.number if expected else None):
                results.append(Conflicted("version"))
                continue
            number = next(self.counter)
            self.entries[name] = (content, number)
            lost = self.rng.random() < self.lost / 2
            results.append(Unknown("the answer was lost") if lost else Written(Version(number, 1)))
        await turn()
        return results


class Documents(Shelf):
    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        return await self.write_each((document.id, document, version) for document, version in documents)

    async def get(self, documents: Sequence[str]) -> Mapping[str, StoredDocument]:
        await turn()
        return {name: self._stored(name) for name in documents if name in self.entries}

    async def kinds(self, prefix: str) -> Sequence[str]:
        raise NotImplementedError

    async def find(self, kind: str, *, tenant: str | None = None) -> Sequence[StoredDocument]:
        await turn()
        return [self._stored(name) for name in sorted(self.entries) if self.entries[name][0].kind == kind]

    async def remove(self, documents: Sequence[StoredDocument]) -> int:
        raise AssertionError("time stands still: nothing is old enough")

    def _stored(self, name: str) -> StoredDocument:
        document, number = self.entries[name]
        return StoredDocument(document, Version(number, 1))


class Jobs(Shelf):
    shown: Sequence[JobDocument] = ()
    """What searches show: an earlier state."""

    async def get(self, names: Sequence[str]) -> Mapping[str, Stored]:
        await turn()
        return {name: self.stored(name) for name in names if name in self.entries}

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        return await self.write_each((change.document.id, change.document, change.expected) for change in changes)

    def stored(self, name: str) -> Stored:
        document, number = self.entries[name]
        return Stored(document, Version(number, 1))

    async def count(self, query: JobQuery, *, by: str) -> Mapping[str, int]:
        await turn()
        return Counter(document.owner for document in self.shown if document.state in query.states)

    async def search(self, query: JobQuery, *, sort: str, limit: int, cursor: str | None) -> JobPage:
        await turn()
        owners = query.anyof["owner"]
        shown = [document for document in self.shown if document.state in query.states and document.owner in owners]
        return JobPage([Stored(document, Version(0, 1)) for document in shown], None)

    def documents(self) -> list[JobDocument]:
        return [document for document, _ in self.entries.values()]


class Collected(BackgroundTasks):
    """What a service does beside its answers, as one more coroutine of its server."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []

    def begin(self, work: Work) -> None:
        self.works.append(work)


class SeatServer:
    """One server: claims, ends and sweeps, any number at once."""

    def __init__(self, name: str, world: SeatWorld) -> None:
        self.name, self.world = name, world
        self.background = Collected()
        self.writer = CheckedWriter(cast("JobStore", world.jobs))
        self.seats = world.seats_of(self)
        self.writer.listeners.append(self.seats)
        self.works: list[Work] = []

    def close(self) -> None:
        for work in (*self.works, *self.background.works):
            work.close()

    async def claim(self, known: Stored) -> None:
        world = self.world
        name = f"{self.name}-{next(world.names)}"
        if name not in await self.seats.take([WantedSeats(name, known.document)]):
            return
        await turn()
        proposed = ProposedWrite(
            known.document.id,
            lambda document: claim(document, claim_id=name, pilot="p", host="h", now=2_000_000),
            lambda document: document.claim is not None and document.claim.id == name,
            known=known,
            no_retry=True,
        )
        (answer,) = await self.writer.write([proposed])
        if not isinstance(answer, WriteApplied):
            self.seats.abandon(name, known.document)

    async def end(self, known: Stored) -> None:
        """The attempt is over, or its pilot was lost: the job can be had again."""
        held = known.document.claim
        assert held is not None

        def ended(document: JobDocument) -> JobDocument:
            if document.claim is None or document.claim.id != held.id:
                return document
            return document.having(state=State.AVAILABLE, claim=None, former_claim=held.id, phase=None)

        await self.writer.write([ProposedWrite(known.document.id, ended, lambda _document: False)])


class SeatWorld:
    """Servers, jobs and licences of one schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.names = itertools.count(1)
        self.jobs, self.documents = Jobs(self.rng), Documents(self.rng)
        self.most = 0
        self.fill()
        self.servers = [SeatServer(f"s{number}", self) for number in range(3)]

    def fill(self) -> None:
        self.seats = {name: self.rng.randint(1, 3) for name in ("a", "b")}
        for name, seats in self.seats.items():
            document = document_of(licence_from(_fresh(name, seats)))
            self.documents.entries[document.id] = (document, next(self.documents.counter))
        for number in range(self.rng.randint(3, 7)):
            wanted = {name: self.rng.randint(1, 2) for name in self.rng.sample(["a", "b"], self.rng.randint(1, 2))}
            spec = Specification("s", "t", "n", ("true",), licences=wanted)
            job = new_job(Submission(spec, "ann"), job=f"j{number}", now=1, by="ann")
            self.jobs.entries[job.id] = (job, next(self.jobs.counter))

    def seats_of(self, server: SeatServer) -> LicenceSeats | QuotaLedgers:
        return LicenceSeats(
            cast("DocumentStore", self.documents), server.writer, StillClock(), _background=server.background
        )

    def run(self) -> None:
        try:
            self.schedule()
        finally:
            for server in self.servers:
                server.close()

    def schedule(self) -> None:
        for _ in range(STEPS):
            self.step()
        while any(server.works or server.background.works for server in self.servers):
            self.step(fresh=False)
        for _ in range(4):  # an answer may be lost there, too
            self.servers[0].works.append(self.servers[0].seats.sweep(older=0))
            while self.servers[0].works or self.servers[0].background.works:
                self.step(fresh=False)
        self.check(settled=self.rng.random() > LOST * 4)

    def step(self, *, fresh: bool = True) -> None:
        server = self.rng.choice(self.servers)
        server.works += server.background.works
        server.background.works.clear()
        if fresh and self.rng.random() < KILLED:
            server.close()
            self.servers[self.servers.index(server)] = SeatServer(f"s{next(self.names)}", self)
            return
        if fresh and len(server.works) < 4 and self.rng.random() < 0.4:
            server.works.append(self.new_work(server))
        if server.works:
            work = self.rng.choice(server.works)
            try:
                work.send(None)
            except StopIteration:
                server.works.remove(work)
        self.check()

    def new_work(self, server: SeatServer) -> Work:
        stored = self.jobs.stored(self.rng.choice(sorted(self.jobs.entries)))
        if self.rng.random() < 0.15:
            return server.seats.sweep(older=0)
        if stored.document.state is State.RUNNING:
            return server.end(stored)
        return server.claim(stored)

    def check(self, *, settled: bool = False) -> None:
        running = [document for document in self.jobs.documents() if document.state is State.RUNNING]
        for name, seats in self.seats.items():
            used = sum(licences_of(document.extra).get(name, 0) for document in running)
            self.most = max(self.most, used)
            assert used <= seats, f"{used} seats of {name} are used, and there are {seats}"
            if settled:
                known = self.documents.entries[f"licence:{name}"][0]
                holders = set(known.body["holders"])
                claims = {
                    document.claim.id for document in running if document.claim and name in licences_of(document.extra)
                }
                assert claims <= holders, f"{claims - holders} run without seats of {name}"


class QuotaWorld(SeatWorld):
    """Owners with quotas of their own and in teams, instead of licences."""

    def fill(self) -> None:
        rng = self.rng

        def limits() -> QuotaLimits:
            return QuotaLimits(rng.choice((None, rng.randint(1, 3))), rng.choice((None, rng.randint(2, 6))))

        self.policy = QuotaPolicy(
            {
                QuotaSubject(QuotaKind.OWNER, "*"): limits(),
                QuotaSubject(QuotaKind.OWNER, "ann"): limits(),
                QuotaSubject(QuotaKind.TEAM, "x"): QuotaLimits(rng.randint(1, 3)),
            },
            {"ann": "x", "bob": "x"},
        )
        policy = Document(f"{POLICY}:t", "t", POLICY, self.policy.to_dict())
        self.documents.entries[policy.id] = (policy, next(self.documents.counter))
        for number in range(rng.randint(3, 7)):
            owner = rng.choice(("ann", "bob", "eve"))
            submission = Submission(
                Specification("s", "t", "n", ("true",)), owner, resources=Resources(cpus=rng.randint(1, 3))
            )
            job = new_job(submission, job=f"j{number}", now=1, by=owner)
            self.jobs.entries[job.id] = (job, next(self.jobs.counter))

    def seats_of(self, server: SeatServer) -> LicenceSeats | QuotaLedgers:
        documents = cast("DocumentStore", self.documents)
        return QuotaLedgers(
            documents,
            cast("JobStore", self.jobs),
            server.writer,
            StillClock(),
            QuotaPolicies(documents),
            server=server.name,
            alone=lambda: False,
            _background=server.background,
        )

    def schedule(self) -> None:
        super().schedule()
        # Nothing stays taken for ever, and nothing that runs stays unknown.
        self.jobs.lost = self.documents.lost = 0
        self.jobs.shown = self.jobs.documents()
        server = self.servers[0]
        assert isinstance(server.seats, QuotaLedgers)
        for work in (server.seats.sweep(older=0), self.adopt(server)):
            server.works.append(work)
            while server.works or server.background.works:
                self.step(fresh=False)
        running = [document for document in self.jobs.documents() if document.claim is not None]
        for name in self.documents.entries:
            if name.startswith(LEDGER):
                ledger = self.ledger(name)
                of_it = [job for job in running if ledger.subject in dict(self.policy.limited(job.owner))]
                assert {job.claim.id for job in of_it if job.claim} == set(ledger.holders), ledger.subject

    def ledger(self, name: str) -> QuotaLedger:
        ledger = ledger_from(self.documents._stored(name))
        assert ledger is not None
        return ledger

    def new_work(self, server: SeatServer) -> Work:
        if self.rng.random() < 0.2:
            self.jobs.shown = self.jobs.documents()
        if self.rng.random() < 0.1:
            return self.adopt(server)
        return super().new_work(server)

    async def adopt(self, server: SeatServer) -> None:
        assert isinstance(server.seats, QuotaLedgers)
        await server.seats.policies.refresh()
        with suppress(PortError):
            await server.seats.put_in_order()
            for document in self.jobs.documents():
                server.seats.exhausted(document)
            await server.seats.refresh()

    def check(self, *, settled: bool = False) -> None:
        running = [document for document in self.jobs.documents() if document.state is State.RUNNING]
        self.most = max(self.most, len(running))
        for subject in {subject for job in self.jobs.documents() for subject, _ in self.policy.limited(job.owner)}:
            of_it = [job for job in running if subject in dict(self.policy.limited(job.owner))]
            limits, used = self.policy.limits_of(subject), sum_of(use_of(job.resources) for job in of_it)
            for most, now in zip((limits.jobs, limits.cpus), used, strict=False):
                assert most is None or now <= most, f"{now} used of the quota of {subject}, and {most} are allowed"
            if settled and (name := ledger_name("t", subject)) in self.documents.entries:
                entered = self.ledger(name).holders.keys()
                claims = {job.claim.id for job in of_it if job.claim is not None}
                assert claims <= entered, f"{claims - entered} run without an entry for {subject}"


def _fresh(name: str, seats: int) -> StoredDocument:
    return StoredDocument(Document(name, "", "", {"name": name, "seats": seats, "holders": {}}), Version(1, 1))


# -- devices -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Process:
    """A process of a payload, or its guard."""

    claim: str
    holds: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    """What is in its environment."""
    payload: bool = True


class Kernel:
    """The processes of a host and the names that they hold."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.open: dict[int, str] = {}
        """Names held by the guard that is just taking them."""
        self.numbers = itertools.count(3)

    def lock(self, device: str) -> int | None:
        if device in self.open.values() or any(device in process.holds for process in self.processes):
            return None
        number = next(self.numbers)
        self.open[number] = device
        return number

    def held(self, device: str) -> bool:
        return device in self.open.values() or any(device in process.holds for process in self.processes)

    def unlock(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.open.pop(number, None)

    def strays(self) -> set[str]:
        return {device for process in self.processes if process.payload for device in process.named}


@dataclass(eq=False)
class SimulatedPilot:
    """A pilot with its guard."""

    devices: HostDevices
    guard: Process
    taken: dict[str, list[Device]] = field(default_factory=dict)
    asked: list[tuple[str, list[Device]]] = field(default_factory=list)
    alive: bool = True


class DeviceWorld:
    """Pilots of one host in one schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.kernel = Kernel()
        self.claims = itertools.count(1)
        self.units = [Device(f"d{number}") for number in range(self.rng.randint(1, 4))]
        self.pilots = [self.new_pilot() for _ in range(2)]
        self.started = self.refused = 0

    def new_pilot(self) -> SimulatedPilot:
        guard = Process("", payload=False)
        self.kernel.processes.append(guard)
        return SimulatedPilot(HostDevices(self.units), guard)

    def run(self) -> None:
        kernel = self.kernel
        with (
            mock.patch.object(devices, "is_held", kernel.held),
            mock.patch.object(devices, "held_by_strays", kernel.strays),
            mock.patch.object(devices, "steady", side_effect=map(float, itertools.count())),
            mock.patch.object(device_locks, "lock_device", kernel.lock),
            mock.patch.object(device_locks, "held_by_strays", kernel.strays),
            mock.patch.object(device_locks, "unlock", kernel.unlock),
        ):
            for _ in range(STEPS):
                self.rng.choice(
                    [self.ask, self.ask, self.start, self.start, self.spawn, self.end, self.end, self.kill]
                )()
                self.check()

    def ask(self) -> None:
        pilot = self.rng.choice(self.pilots)
        taken = pilot.devices.take(self.rng.randint(1, 2)) if pilot.alive else None
        if taken is not None:
            pilot.asked.append((f"c{next(self.claims)}", taken))

    def start(self) -> None:
        """The guard takes the names and forks."""
        pilot = self.rng.choice(self.pilots)
        if not pilot.asked or not pilot.alive or pilot.guard not in self.kernel.processes:
            return
        claim_id, taken = pilot.asked.pop()
        names = [device.name for device in taken]
        try:
            locks = device_locks.lock_devices(names)
        except device_locks.DeviceHeldError:
            self.refused += 1
            pilot.devices.give_back(taken)
            return
        self.started += 1
        self.kernel.unlock(locks)
        pilot.guard.holds |= frozenset(names)
        pilot.taken[claim_id] = taken
        self.kernel.processes.append(Process(claim_id, frozenset(names), frozenset(names)))

    def spawn(self) -> None:
        """A payload starts something: with all it has, without its environment, or with its descriptors closed."""
        payloads = [process for process in self.kernel.processes if process.payload]
        if payloads:
            parent = self.rng.choice(payloads)
            kind = self.rng.randrange(3)
            holds = frozenset[str]() if kind == 2 and parent.named else parent.holds
            named = frozenset[str]() if kind == 1 and parent.holds else parent.named
            self.kernel.processes.append(Process(parent.claim, holds, named))

    def end(self) -> None:
        """A payload is over: its guard kills what is left of it, or some of it escapes, and then it is told."""
        pilot = self.rng.choice(self.pilots)
        if not pilot.taken or pilot.guard not in self.kernel.processes:
            return
        claim_id = self.rng.choice(sorted(pilot.taken))
        for process in [process for process in self.kernel.processes if process.claim == claim_id]:
            if self.rng.random() < 0.9:
                self.kernel.processes.remove(process)
        taken = pilot.taken.pop(claim_id)
        pilot.guard.holds -= {device.name for device in taken}
        pilot.devices.give_back(taken)

    def kill(self) -> None:
        """A pilot, a guard or both die; what they ran dies after them, or not."""
        place = self.rng.randrange(len(self.pilots))
        pilot = self.pilots[place]
        if self.rng.random() < 0.6:
            return
        if pilot.guard in self.kernel.processes:
            self.kernel.processes.remove(pilot.guard)
        for process in [process for process in self.kernel.processes if process.claim in pilot.taken]:
            if self.rng.random() < 0.7:
                self.kernel.processes.remove(process)
        if self.rng.random() < 0.5:  # the guard alone: the pilot starts another, and knows what it gave
            pilot.guard = Process("", payload=False)
            self.kernel.processes.append(pilot.guard)
            for taken in pilot.taken.values():
                pilot.devices.give_back(taken)
            pilot.taken.clear()
        else:
            self.pilots[place] = self.new_pilot()

    def check(self) -> None:
        users: dict[str, set[str]] = {}
        for process in self.kernel.processes:
            if process.payload:
                for device in process.holds | process.named:
                    users.setdefault(device, set()).add(process.claim)
        shared = {device: claims for device, claims in users.items() if len(claims) > 1}
        assert not shared, f"devices are shared: {shared}"


class ScheduleTally(NamedTuple):
    """What all schedules together did."""

    seats: int
    """The most seats of a licence at once."""
    running: int
    """The most jobs under quotas at once."""
    started: int
    """Payloads that began on devices."""


def run_schedules(count: int, seed: int = 0) -> ScheduleTally:
    """All kinds for each seed. A failure names its seed."""
    tally = ScheduleTally(0, 0, 0)
    for number in range(seed, seed + count):
        try:
            seats, quotas, units = SeatWorld(number), QuotaWorld(number), DeviceWorld(number)
            seats.run()
            quotas.run()
            units.run()
        except AssertionError as error:
            raise AssertionError(f"seed {number}: {error}") from error
        tally = ScheduleTally(
            max(tally.seats, seats.most), max(tally.running, quotas.most), tally.started + units.started
        )
    return tally


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(words)
    tally = run_schedules(arguments.schedules, arguments.seed)
    print(  # noqa: T201
        f"{arguments.schedules} schedules of each kind from seed {arguments.seed}: no device and no seat was shared, no quota exceeded"
    )
    print(  # noqa: T201
        f"at most {tally.seats} seats of a licence and {tally.running} jobs under quotas at once; {tally.started} payloads began"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
