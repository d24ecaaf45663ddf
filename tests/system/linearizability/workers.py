"""Worker processes: each runs several clients, every client with a store instance of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue
from pathlib import Path

from tests.system.linearizability.claims import ClaimClient
from tests.system.linearizability.history import Recorder
from tests.system.linearizability.registers import RegisterClient

from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import JobStore
from forestay.services.shared.checked_writer import CheckedWriter

_TRICKLE = 4.0
"""Seconds between the steps of a client while the run waits for something else than operations."""
_SERVER = multiprocessing.get_context("forkserver")
# Everything is loaded once, so that the place of a killed worker is soon taken.
_SERVER.set_forkserver_preload([__name__])


@dataclass(frozen=True, slots=True)
class OpenSearchAt:
    """How a client reaches OpenSearch."""

    hosts: tuple[str, ...]
    prefix: str
    replicas: int
    wait_for_active_shards: int
    timeout: float = 5.0

    def store(self) -> JobStore:
        return OpenSearchJobStore(
            self.hosts,
            prefix=self.prefix,
            replicas=self.replicas,
            shards=3,
            wait_for_active_shards=self.wait_for_active_shards,
            timeout=self.timeout,
        )


@dataclass(frozen=True, slots=True)
class SqlAt:
    """How a client reaches a SQL database."""

    url: str
    timeout: float = 10.0

    def store(self) -> JobStore:
        return SqlJobStore(self.url, connections=2, timeout=self.timeout)


At = OpenSearchAt | SqlAt


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """One client: what it does, in which arm, and by which way it reaches the store."""

    name: str
    arm: str
    at: At
    claims: bool


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One process."""

    place: int
    """Where it counts its operations."""
    log: Path
    clients: tuple[ClientPlan, ...]
    documents: int
    seed: int


class Control:
    """What the processes share. No locks: a process that is killed would keep one for ever."""

    def __init__(self, places: int, target: int) -> None:
        self.counts = RawArray("q", places)
        self.target = target
        self._allowed = RawValue("q", 0)
        self._stop = RawValue("b", 0)

    @property
    def total(self) -> int:
        return sum(self.counts)

    @property
    def allowed(self) -> int:
        """Up to so many operations the clients work at full speed; past it they only trickle."""
        return int(self._allowed.value)

    @allowed.setter
    def allowed(self, operations: int) -> None:
        self._allowed.value = operations

    @property
    def stopped(self) -> bool:
        return bool(self._stop.value)

    def stop(self) -> None:
        self._stop.value = 1

    def progress(self) -> float:
        return min(1.0, self.total / self.target)


class Worker:
    """One running process."""

    def __init__(self, plan: WorkerPlan, control: Control) -> None:
        self.plan = plan
        self.process = _SERVER.Process(target=_work, args=(plan, control), daemon=True)
        self.process.start()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.join()

    def check(self) -> None:
        """Fail if the process ended by itself: that is a bug of the recorder or of the store, not a fault of the run."""
        if self.process.exitcode is not None:
            raise SystemExit(f"worker {self.plan.place} ended by itself with code {self.process.exitcode}")

    def join(self, patience: float) -> None:
        self.process.join(patience)
        if self.process.exitcode != 0:
            raise SystemExit(f"worker {self.plan.place} ended with code {self.process.exitcode}")


def _work(plan: WorkerPlan, control: Control) -> None:
    recorder = Recorder(plan.log)
    try:
        asyncio.run(_run_clients(plan, control, recorder))
    finally:
        recorder.close()


async def opened(store: JobStore) -> None:
    """Make what is missing; nodes that were only just started may be too slow for it at first."""
    while True:
        try:
            await store.open()
        except Transient:
            await asyncio.sleep(1)
        else:
            return


async def _run_clients(plan: WorkerPlan, control: Control, recorder: Recorder) -> None:
    stores = [client.at.store() for client in plan.clients]
    try:
        for store in stores:
            await opened(store)
        async with asyncio.TaskGroup() as group:
            for place, (client, store) in enumerate(zip(plan.clients, stores, strict=True)):
                dice = random.Random(f"{plan.seed} {place}")
                made = _client(client, store, recorder, dice, plan.documents, control)
                group.create_task(_drive(made, dice, plan.place, control))
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def _drive(client: RegisterClient | ClaimClient, dice: random.Random, place: int, control: Control) -> None:
    while not control.stopped:
        if control.total >= control.allowed:
            await asyncio.sleep(_TRICKLE * dice.random())
        await client.step()
        control.counts[place] = client.recorder.returned


def _client(
    plan: ClientPlan, store: JobStore, recorder: Recorder, dice: random.Random, documents: int, control: Control
) -> RegisterClient | ClaimClient:
    if plan.claims:
        return ClaimClient(plan.name, plan.arm, store, CheckedWriter(store), recorder, dice)
    return RegisterClient(plan.name, plan.arm, store, recorder, documents, dice, control.progress)


def worker_plans(
    ways: Sequence[tuple[str, At]], *, processes: int, folder: Path, documents: int, seed: int, first: int = 0
) -> list[WorkerPlan]:
    """As many processes as asked for, each with one client for each way to the store, and for each arm one that claims."""
    plans = []
    for place in range(first, first + processes):
        clients = [ClientPlan(f"w{place}c{number}", arm, at, claims=False) for number, (arm, at) in enumerate(ways)]
        last_way = dict(ways)
        clients += [ClientPlan(f"w{place}{arm}", arm, at, claims=True) for arm, at in last_way.items()]
        log = folder / f"worker-{place}.log"
        plans.append(WorkerPlan(place, log, tuple(clients), documents, seed * 1000 + place))
    return plans
