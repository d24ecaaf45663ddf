"""What jobs would have asked for, read off the documents of a real SQLite store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from tests.unit.services.flows.test_completion_relay import BEGIN, CountingStore, HandClock

from forestay.domain.flows.definition.flow import Flow, Task
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.reuse import REUSE
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.flows.flow_store import FlowStore
from forestay.services.operations import right_sizing
from forestay.services.operations.right_sizing import RightSizing, SizeReport

GB = 1 << 30
TASK = Task("align", JobPattern(("align",)))


@dataclass
class Bench:
    store: CountingStore
    clock: HandClock
    flows: FlowStore
    made: int = 0

    async def end(
        self,
        peaks: Sequence[float],
        *,
        name: str = "align",
        tenant: str = "lab",
        flow: str = "",
        asked: int = 30,
        sizes: Sequence[int] = (),
        changes: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[JobDocument]:
        """Jobs that have ended and used so many GB."""
        spec = Specification("s", tenant, name, (name,), resources=Resources(memory=asked * GB, wall=7200))
        documents = []
        for at, peak in enumerate(peaks):
            self.made += 1
            document = new_job(Submission(spec, "ann"), job=f"j-{self.made}", now=BEGIN + self.made, by="ann")
            winner = AttemptResult(
                Token(0, 1), "c", AttemptOutcome.OK, exit_code=0, wall=600.0, peak_memory=int(peak * GB),
                input_bytes=sizes[at] if sizes else None,
            )  # fmt: skip
            ref = FlowRef("r", "align@1", flow, -1, at, 1) if flow else None
            ended = replace(document, state=State.COMPLETED, attempt=1, winner=winner, last=winner, flow_ref=ref)
            documents.append(replace(ended, **changes))
        for start in range(0, len(documents), 500):
            await self.store.write([DocumentChange(document, None) for document in documents[start : start + 500]])
        return documents

    async def report(self, **asked: str) -> SizeReport:
        return await RightSizing(self.store, self.flows, self.clock).report("lab", **asked)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = CountingStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    await store.open()
    clock = HandClock()
    try:
        yield Bench(store, clock, FlowStore(store, clock))
    finally:
        await store.close()


async def test_a_task_that_asks_for_ten_times_too_much(bench: Bench) -> None:
    rng = Random(7)
    version = await bench.flows.put(Flow("nightly", (TASK,)), tenant="lab")
    await bench.end([2.4 + 0.4 * rng.random() for _ in range(400)], flow=version)
    await bench.end([7.0] * 60, name="other")
    report = await bench.report()
    assert [(sizes.flow, sizes.task, sizes.advice.jobs) for sizes in report.tasks] == [
        ("nightly", "align", 400), ("", "other", 60),
    ]  # fmt: skip
    assert (report.read, report.whole) == (460, True)
    advice = report.tasks[0].advice
    assert advice.sizes is not None
    assert advice.sizes.memory is not None
    assert (advice.asked_memory, round(advice.sizes.memory / GB, 1), advice.sizes.wall) == (30 * GB, 3.1, 780)
    assert advice.backtest is not None
    assert advice.backtest.failed <= 0.02 * advice.backtest.jobs
    assert advice.backtest.would_waste < 0.1 * advice.backtest.wasted


async def test_memory_that_grows_with_the_input(bench: Bench) -> None:
    rng = Random(8)
    sizes = [rng.randrange(1, 8 * GB) for _ in range(600)]
    await bench.end([0.5 + 2 * size / GB for size in sizes], sizes=sizes)
    (task,) = (await bench.report(task="align")).tasks
    assert task.advice.sizes is not None
    ranges = task.advice.sizes.ranges
    assert [part.jobs for part in ranges] == [100] * 6
    memories = [part.memory or 0 for part in ranges]
    assert memories == sorted(memories)
    assert memories[0] < 5 * GB < memories[-1]
    assert task.advice.sizes.memory_for(9 * GB) is None


async def test_whose_jobs_and_which_are_looked_at(bench: Bench) -> None:
    mine = await bench.end([1.0] * 60)
    await bench.end([99.0] * 60, tenant="others")
    await bench.end([99.0] * 60, changes={"extra": {REUSE: {"from": mine[0].id}}})
    assert mine[0].winner is not None
    failed = replace(mine[0].winner, outcome=AttemptOutcome.FAILURE)
    bad = {"state": State.FAILED, "winner": None, "last": failed}
    await bench.end([99.0] * 60, changes=bad)
    await bench.end([99.0] * 60, changes={"state": State.RUNNING})
    await bench.end([0.0] * 60)
    (task,) = (await bench.report()).tasks
    assert task.advice.jobs == 60, "not of another tenant, not reused, not failed early, not running, not unmeasured"
    await bench.end([1.0] * 3, changes=bad | {"last": replace(failed, oom_kills=1)})
    (task,) = (await bench.report()).tasks
    assert task.advice.sizes is not None
    assert (task.advice.jobs, task.advice.out_of_memory, task.advice.sizes.memory) == (63, 3, None)


async def test_what_is_read_is_bounded_and_the_newest_count(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(right_sizing, "PAGE", 100)
    monkeypatch.setattr(right_sizing, "MOST_READ", 300)
    monkeypatch.setattr(right_sizing, "MOST_OF_TASK", 150)
    await bench.end([9.0] * 300)
    await bench.end([1.0] * 200)
    bench.store.read = 0
    report = await bench.report()
    assert (report.read, report.whole, bench.store.read) == (300, False, 300)
    advice = report.tasks[0].advice
    assert advice.sizes is not None
    assert (advice.jobs, advice.sizes.memory) == (150, 1127 << 20)
    bench.store.read = 0
    assert (await bench.report(task="align", flow="")).tasks[0].advice.jobs == 150
    assert bench.store.read == 200, "no more than it needs"
    assert (await bench.report(flow="nightly")).tasks == ()
