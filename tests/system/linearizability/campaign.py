"""One run: clients at work while things go wrong, then quiet, then what stands in the end."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.system.linearizability import claims, registers
from tests.system.linearizability.claims import ClaimClient
from tests.system.linearizability.faults import Fault, until
from tests.system.linearizability.history import VALUE, Recorder, merged, shown, write_history
from tests.system.linearizability.registers import RegisterClient
from tests.system.linearizability.workers import At, Control, Worker, WorkerPlan, opened, worker_plans

from forestay.ports.jobs.job_store import JobStore
from forestay.services.shared.checked_writer import CheckedWriter

_BEFORE = 0.3
"""The share of a fault's operations that come before it."""
_STALLED = 300.0
"""Seconds without enough operations after which a run is given up."""
_MOST_AT_ONCE = 200
_SPARE = 16
"""Workers that may take the place of killed ones."""

Copies = Callable[[str, Sequence[str]], Awaitable[Mapping[int, Mapping[str, Mapping[str, Any]]]]]


async def no_copies(_: str, __: Sequence[str]) -> Mapping[int, Mapping[str, Mapping[str, Any]]]:
    """A store with one copy."""
    return {}


@dataclass(slots=True)
class Campaign:
    """A store under test."""

    name: str
    ways: Sequence[tuple[str, At]]
    """By which ways clients reach the store, each with the arm it belongs to; of several the last takes part in more."""
    operations: int
    documents: int
    """In each arm."""
    folder: Path
    seed: int
    processes: int
    quiet: Callable[[], Awaitable[None]]
    copies: Copies = no_copies
    kills: int = 0
    _workers: list[Worker] = field(default_factory=list)
    _plans: list[WorkerPlan] = field(default_factory=list)
    _control: Control = field(init=False)

    def __post_init__(self) -> None:
        self._control = Control(self.processes + _SPARE, self.operations)

    async def run(self, faults: Sequence[Fault]) -> dict[str, Path]:
        """Let the clients work through all faults; gives the histories by arm."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for arm, at in dict(self.ways).items():
            async with _opened(at):
                self.say(f"{arm}: ready")
        try:
            await self._start(self.processes)
            for fault in faults:
                await self._meet(fault, self.operations // len(faults))
            self._control.allowed = self.operations
            await self._count(self.operations)
        finally:
            self._control.stop()
        for worker in self._workers:
            await asyncio.to_thread(worker.join, _STALLED)
        self.say(f"{self._control.total} operations; waiting for quiet")
        await self.quiet()
        await self._close()
        return self._write()

    async def kill_worker(self) -> None:
        """kill -9 of a worker process; another takes its place."""
        victim = self._workers.pop(random.Random(self.seed + len(self._plans)).randrange(len(self._workers)))
        victim.kill()

    async def replace_worker(self) -> None:
        await self._start(1)

    def say(self, text: str) -> None:
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)  # noqa: T201

    async def _start(self, many: int) -> None:
        plans = worker_plans(
            self.ways,
            processes=many,
            folder=self.folder,
            documents=self.documents,
            seed=self.seed,
            first=len(self._plans),
        )
        self._plans += plans
        for plan in plans:
            plan.log.unlink(missing_ok=True)
            self._workers.append(Worker(plan, self._control))

        async def at_work() -> bool:
            return self._alive() and all(self._control.counts[plan.place] > 0 for plan in plans)

        await until(at_work, "the workers are at work")

    def _alive(self) -> bool:
        for worker in self._workers:
            worker.check()
        return True

    async def _meet(self, fault: Fault, operations: int) -> None:
        """So many operations at full speed around a fault, and a trickle until it is healed."""
        began = self._control.total
        self._control.allowed = began + operations
        await self._count(began + int(_BEFORE * operations))
        self.say(f"{self._control.total} operations; {fault.name}")
        since = time.monotonic()
        await fault.strike()
        self.kills += fault.kills
        if fault.wait_between:
            await self._count(self._control.allowed)
        await fault.heal()
        await self._count(self._control.allowed)
        self.say(f"{self._control.total} operations; healed after {time.monotonic() - since:.0f} s")

    async def _count(self, operations: int) -> None:
        async def enough() -> bool:
            return self._alive() and self._control.total >= operations

        await until(enough, f"there are {operations} operations", _STALLED)

    async def _close(self) -> None:
        """Write every document once more, so that what stands is proven and not only read; then read every copy."""
        log = self.folder / "closing.log"
        log.unlink(missing_ok=True)
        recorder = Recorder(log)
        done = merged(plan.log for plan in self._plans)
        try:
            for arm, at in dict(self.ways).items():
                names = {
                    level: sorted(
                        {record["document"] for record in done if record["arm"] == arm and record["level"] == level}
                    )
                    for level in (registers.LEVEL, claims.LEVEL)
                }
                async with _opened(at) as store:
                    await self._close_registers(arm, store, recorder, names[registers.LEVEL])
                    await self._close_claims(arm, store, recorder, names[claims.LEVEL])
        finally:
            recorder.close()

    async def _close_registers(self, arm: str, store: JobStore, recorder: Recorder, names: Sequence[str]) -> None:
        client = RegisterClient(f"closing-{arm}", arm, store, recorder, 0, random.Random(0), lambda: 1.0)
        for some in _parts(names):
            left = list(some)

            async def write_all(left: list[str] = left) -> bool:
                stored_jobs = await store.get(left)
                client.known = dict(stored_jobs)
                acknowledged = await client.write(left)
                left[:] = [name for name, sure in zip(left, acknowledged, strict=True) if not sure]
                return not left

            await until(write_all, "every document was written a last time")
            numbers = recorder.call([_final(arm, f"last-{arm}", name) for name in some])
            last = await store.get(some)
            recorder.done(numbers, [shown(last.get(name)) for name in some])
            for node, docs in (await self.copies(arm, some)).items():
                here = [name for name in some if name in docs]
                numbers = recorder.call([_final(arm, f"copy-{node}", name) for name in here])
                recorder.done(numbers, [_copied(docs[name]) for name in here])

    async def _close_claims(self, arm: str, store: JobStore, recorder: Recorder, names: Sequence[str]) -> None:
        client = ClaimClient(f"closing-{arm}", arm, store, CheckedWriter(store), recorder, random.Random(0))
        for some in _parts(names):
            left = list(some)

            async def confirm_all(left: list[str] = left) -> bool:
                left[:] = await client.close(left)
                return not left

            await until(confirm_all, "every job was confirmed a last time")

    def _write(self) -> dict[str, Path]:
        operations = merged([*(plan.log for plan in self._plans), self.folder / "closing.log"])
        histories = {}
        for arm in dict(self.ways):
            # A last look that was not sure was followed by another.
            kept = (operation for operation in operations if operation["arm"] == arm and not _unsure(operation))
            histories[arm] = self.folder / f"{arm}.jsonl"
            write_history(kept, histories[arm])
        return histories


def _unsure(operation: Mapping[str, Any]) -> bool:
    return bool(operation["kind"] == "final" and operation["result"] == "unknown")


def _final(arm: str, client: str, document: str) -> dict[str, object]:
    return {"level": registers.LEVEL, "arm": arm, "client": client, "document": document, "kind": "final"}


def _copied(doc: Mapping[str, Any]) -> Mapping[str, Any]:
    if not doc.get("found"):
        return {"result": "missing"}
    version = {"number": doc["_seq_no"], "term": doc["_primary_term"]}
    return {"result": "found", "value": doc["_source"]["parameters"][VALUE], "version": version}


def _parts(names: Sequence[str]) -> list[Sequence[str]]:
    return [names[start : start + _MOST_AT_ONCE] for start in range(0, len(names), _MOST_AT_ONCE)]


@asynccontextmanager
async def _opened(at: At) -> AsyncIterator[JobStore]:
    store = at.store()
    try:
        await asyncio.wait_for(opened(store), _STALLED)
        yield store
    finally:
        await store.close()
