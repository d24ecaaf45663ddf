"""The recorder and the checker over a store in memory: true to the law it passes, every sin against it is caught."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from tests.system.linearizability.claims import ClaimClient
from tests.system.linearizability.fake_store import FakeStore, Sin
from tests.system.linearizability.history import Recorder, merged, write_history
from tests.system.linearizability.registers import RegisterClient
from tests.system.linearizability.verdict import Verdict, judge

from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Stored, Written
from forestay.services.shared.checked_writer import (
    Answer,
    CheckedWriter,
    JobMissing,
    ProposedWrite,
    WriteApplied,
    Writer,
    WriteUnsettled,
)

pytestmark = pytest.mark.slow

STEPS = 60
CLIENTS = 8


class BelievesItself:
    """A writer that takes a write whose answer was lost for done."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store

    async def write(self, writes: Sequence[ProposedWrite]) -> Sequence[Answer]:
        return [await self._one(proposed) for proposed in writes]

    async def _one(self, proposed: ProposedWrite) -> Answer:
        try:
            stored = proposed.known or (await self.store.get([proposed.job])).get(proposed.job)
        except Transient as error:
            return WriteUnsettled(str(error))
        if stored is None:
            return JobMissing()
        wanted = proposed.decide(stored.document)
        if isinstance(wanted, TransitionRefused):
            return wanted
        result = (await self.store.write([DocumentChange(wanted, stored.version)]))[0]
        if isinstance(result, Written):
            return WriteApplied(Stored(wanted, result.version))
        return await self._believe(proposed, Stored(wanted, stored.version))

    async def _believe(self, _: ProposedWrite, written: Stored) -> Answer:
        return WriteApplied(written)


class BelievesWhatItReads(BelievesItself):
    """A writer that reads after an unclear answer, and believes what it sees without a confirming write."""

    async def _believe(self, proposed: ProposedWrite, written: Stored) -> Answer:
        try:
            stored = (await self.store.get([proposed.job])).get(proposed.job)
        except Transient as error:
            return WriteUnsettled(str(error))
        return (
            WriteApplied(stored)
            if stored and proposed.already_applied(stored.document)
            else TransitionRefused("somebody else's write took effect")
        )


def checked(store: FakeStore) -> Writer:
    return CheckedWriter(cast("JobStore", store))


async def history_of(store: FakeStore, folder: Path, clients: Sequence[RegisterClient | ClaimClient]) -> Verdict:
    async def work(client: RegisterClient | ClaimClient) -> None:
        for _ in range(STEPS):
            await client.step()

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(work(client))
    await store.settle()
    log = folder / "recorder.log"
    seen = {(record["level"], record["document"]) for record in merged([log])}
    jobs = sorted(name for level, name in seen if level == "writer")
    recorder = clients[0].recorder
    if jobs:
        closing = ClaimClient("closing", "fake", store, checked(store), recorder, random.Random(0))
        assert await closing.close(jobs) == []
    else:
        last = RegisterClient("closing", "fake", store, recorder, 1, random.Random(0), lambda: 1.0)
        names = sorted(name for _, name in seen)
        last.known = dict(await store.get(names))
        assert all(await last.write(names))
    recorder.close()
    write_history(merged([log]), folder / "history.jsonl")
    return judge(folder / "history.jsonl")


async def registers(store: FakeStore, folder: Path) -> Verdict:
    recorder = Recorder(folder / "recorder.log")
    return await history_of(
        store,
        folder,
        [
            RegisterClient(f"c{number}", "fake", store, recorder, 10, random.Random(number), lambda: 1.0)
            for number in range(CLIENTS)
        ],
    )


async def claims(store: FakeStore, writer: Writer, folder: Path) -> Verdict:
    recorder = Recorder(folder / "recorder.log")
    return await history_of(
        store,
        folder,
        [
            ClaimClient(f"c{number}", "fake", store, writer, recorder, random.Random(number))
            for number in range(CLIENTS)
        ],
    )


async def test_a_lawful_store_passes_however_unclear_its_answers(tmp_path: Path) -> None:
    verdict = await registers(FakeStore(random.Random(1)), tmp_path)
    assert verdict.verdict == "OK", verdict.violations
    assert verdict.acknowledged > 300
    assert verdict.unknown_effective > 5
    assert verdict.conflicted_effective > 5
    assert verdict.stale_reads > 0
    assert verdict.dirty_reads > 0


@pytest.mark.parametrize("sin", [sin for sin in Sin if sin is not Sin.NONE])
async def test_a_store_that_breaks_the_law_is_caught(sin: Sin, tmp_path: Path) -> None:
    verdict = await registers(FakeStore(random.Random(2), sin), tmp_path)
    assert verdict.verdict == "VIOLATION"
    assert verdict.violations


async def test_the_checked_writer_passes_over_an_unclear_store(tmp_path: Path) -> None:
    store = FakeStore(random.Random(3))
    verdict = await claims(store, checked(store), tmp_path)
    assert verdict.verdict == "OK", verdict.violations
    assert verdict.acknowledged > 200
    assert verdict.unknown_effective + verdict.conflicted_effective > 0


@pytest.mark.parametrize("naive", [BelievesItself, BelievesWhatItReads])
async def test_a_naive_writer_is_caught_over_the_same_store(naive: type[BelievesItself], tmp_path: Path) -> None:
    store = FakeStore(random.Random(4))
    assert (await claims(store, naive(store), tmp_path)).verdict == "VIOLATION"


async def test_claims_over_a_store_that_breaks_the_law_are_caught(tmp_path: Path) -> None:
    store = FakeStore(random.Random(5), Sin.IGNORES_VERSIONS)
    assert (await claims(store, checked(store), tmp_path)).verdict == "VIOLATION"
