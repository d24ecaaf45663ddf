"""A dry run over a real store and real files: what it says is what the jobs of the next run then do, and it writes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.generated import PARAMS, flows
from tests.unit.services.data.test_committed_files import CLAIM, TOKEN, written
from tests.unit.services.flows.test_completion_relay import HandClock

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import RandomIds
from forestay.adapters.system.file_digests import SharedFileDigests
from forestay.adapters.system.file_lists import SharedFiles
from forestay.adapters.system.results import SharedResults
from forestay.domain.flows.commands import Command, ListFiles, SubmitJobs
from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.dry_run import DryRun, InputCheck, PlannedTask
from forestay.domain.flows.events import Event, FilesListed, JobsEnded
from forestay.domain.flows.execution.advance import advance, start_run
from forestay.domain.flows.execution.flow_run import RunPhase
from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, State
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.jobs.reuse import why_run
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored
from forestay.services.data.listings import ListingRound, Listings
from forestay.services.data.output_resolver import OutputResolver
from forestay.services.flows.compensation_library import CompensationLibrary
from forestay.services.flows.completion_facts import CompletionFacts
from forestay.services.flows.dry_runner import DryRunner
from forestay.services.flows.flow_jobs import FlowJobs, JobBatch
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.result_reuse import ResultReuse
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import JobSubmitter

TENANT = "t"
CHAIN = """
forestay: 1
name: chain
reuse: true
params: {reference: null, pieces: 2, mode: full}
tasks:
  count:
    scatter: {file: {files: "in/*.txt"}}
    inputs: {in.txt: "${file}", ref: "${params.reference}"}
    run: wc -c < in.txt > out.txt
    outputs: {out: out.txt}
    resources: {memory: 2 GiB, cpus: 2}
  double:
    scatter: {count: "${tasks.count.outputs.out}"}
    inputs: {in.txt: "${count}"}
    run: echo 2 > out.txt
    outputs: {out: out.txt}
  all:
    inputs: {parts: "${tasks.double.outputs.out}"}
    run: cat parts/* > sum
    result: sum
  split:
    scatter: {piece: {range: [0, "${params.pieces}"]}, side: [left, right]}
    command: [split, "${piece}", "${side}", "${tasks.all.result}"]
    after: [all]
  quick: {command: [quick], when: "params.mode == 'quick'"}
  rest: {command: [rest], when: "tasks.all.result.sum > 3"}
  tell: {command: [echo, told], effects: external, after: [all]}
"""


@dataclass
class Bench:
    """Runs flows on a real store; a job is done at once, as its task's outputs say."""

    folder: Path
    store: SqlJobStore
    documents: SqlDocumentStore
    clock: HandClock

    def __post_init__(self) -> None:
        results = SharedResults((self.folder / "made",))
        files = SharedFiles((self.folder,), hidden=(self.folder / "hidden",))
        self.listings = Listings(self.store, self.clock, files)
        outputs = OutputResolver(self.store, results)
        reuse = ResultReuse(self.store, self.documents, results, SharedFileDigests((self.folder,)))
        self.flows = FlowStore(self.store, self.clock)
        self.jobs = FlowJobs(
            self.store, self.documents, self.flows, JobSubmitter(self.store, self.clock, RandomIds()),
            cast("JobControl", None), CompletionFacts(results), self.listings, outputs, OutboundPolicy((), setting="staging_hosts"),
            FlowSuspensions(self.documents), CompensationLibrary(self.documents, self.clock), None, reuse,
        )  # fmt: skip
        self.dry_runner = DryRunner(files, outputs, reuse, self.clock)

    async def dry_run(self, plan: FlowPlan, **params: object) -> DryRun:
        return await self.dry_runner.dry_run(plan, params, tenant=TENANT, owner="ann")

    async def run(self, plan: FlowPlan, name: str, **params: object) -> dict[str, tuple[int, int]]:
        """How many jobs of each task were reused and run."""
        await self.flows.put(plan.flow, tenant=TENANT)
        run, commands = start_run(plan, run=name, at=1, params=params, streams=False)
        events: list[Event] = []
        while True:
            for command in commands:
                events += await self._perform(plan, name, command)
            if not events or run.phase is RunPhase.FINISHED:
                break
            run, commands = advance(run, events.pop(0))
        done: dict[str, tuple[int, int]] = {}
        for stored in (await self.store.search(JobQuery(TENANT, anyof={"run": [name]}), limit=100)).jobs:
            reused, ran = done.get(stored.document.name, (0, 0))
            again = why_run(stored.document).reused is not None
            done[stored.document.name] = (reused + again, ran + (not again))
        return done

    async def _perform(self, plan: FlowPlan, run: str, command: Command) -> list[Event]:
        if isinstance(command, ListFiles):
            whose = ListingRound(TENANT, run, command.work, command.dimension)
            listed = await self.listings.list_files(whose, command.pattern, lines=command.lines)
            return [FilesListed(2, command.work, command.dimension, listed.listing, listed.count)]
        if not isinstance(command, SubmitJobs):
            return []
        batch = JobBatch(
            TENANT, "ann", run, plan.version, command.order, -1, command.first, command.first, command.count,
            command.skip, of=command.count,
        )  # fmt: skip
        submitted = await self.jobs.submit(batch)
        assert submitted.reason == ""
        events: list[Event] = []
        for at, stored in enumerate((await self.store.get(batch.jobs())).values()):
            await self._end(stored)
            result = {"sum": 5} if command.order.task == "all" else None
            events.append(JobsEnded(2, command.order.work, well=1 << (command.first + at), exit_code=0, result=result))
        return events

    async def _end(self, stored: Stored) -> None:
        document = stored.document
        if document.final:
            return
        spec = (await self.store.get_specifications([document.specification]))[document.specification]
        names = {filled_text(text, document.parameters, document.index) for text in spec.outputs}
        content = hashlib.sha256(repr(sorted(document.parameters.items())).encode()).hexdigest().encode()
        folder = self.folder / "made" / TENANT / document.id / "1.1.c0ffee00"
        manifest = written(folder, **dict.fromkeys(names, content)) if names else None
        winner = AttemptResult(TOKEN, CLAIM, AttemptOutcome.OK, exit_code=0, manifest=manifest)
        done = replace(document, state=State.COMPLETED, winner=winner)
        await self.store.write([DocumentChange(done, stored.version)])


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = SqlJobStore(f"sqlite:///{tmp_path}/s.db")
    await store.open()
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / f"{name}.txt").write_text(name)
    (tmp_path / "ref.fa").write_text("ACGT")
    try:
        yield Bench(tmp_path, store, SqlDocumentStore(store.database), HandClock())
    finally:
        await store.close()


def plan_of(text: str) -> FlowPlan:
    flow = read_flow_text(text).flow
    assert flow is not None, read_flow_text(text).problems
    return planned(flow)


def by_name(dry: DryRun) -> dict[str, PlannedTask]:
    return {task.name: task for task in dry.tasks}


def forecast(dry: DryRun) -> Mapping[str, Any]:
    return {task.name: (task.reuse.reused, task.reuse.run, task.reuse.open) for task in dry.tasks if task.reuse}


async def test_what_is_known_before_the_first_run_and_what_is_not(bench: Bench) -> None:
    plan = plan_of(CHAIN)
    dry = await bench.dry_run(plan, reference=f"{bench.folder}/ref.fa")
    tasks = by_name(dry)
    assert list(tasks) == ["count", "double", "all", "split", "quick", "rest", "tell"], "in the order of the run"
    assert {name: task.jobs for name, task in tasks.items()} == {
        "count": 3, "double": 3, "all": 1, "split": 4, "quick": 1, "rest": 1, "tell": 1,
    }  # fmt: skip
    assert (tasks["quick"].runs, tasks["rest"].runs, tasks["all"].runs) == (False, None, True)
    assert dry.jobs == 13, "one that is certainly skipped is not counted"
    assert tasks["count"].inputs == InputCheck(checked=4)
    assert tasks["double"].inputs == InputCheck(later=("in.txt",))
    assert tasks["count"].reuse is not None
    assert (tasks["count"].reuse.run, tasks["count"].reuse.why) == (3, "no earlier result of this element of the task is known")  # fmt: skip
    assert tasks["double"].reuse is not None
    assert tasks["double"].reuse.why == "depends on tasks.count.outputs.out"
    assert tasks["count"].resources is not None
    assert (tasks["count"].resources.cpus, tasks["count"].resources.memory) == (2, 2 << 30)


async def test_missing_inputs_are_named_and_what_flows_may_not_see_is_not_told(bench: Bench) -> None:
    plan = plan_of(CHAIN)
    (bench.folder / "hidden").mkdir()
    gone = by_name(await bench.dry_run(plan, reference=f"{bench.folder}/gone.fa"))["count"]
    assert gone.inputs == InputCheck(checked=4, missing=(f"{bench.folder}/gone.fa",), missing_count=1)
    for place in (f"{bench.folder}/hidden/x", "/etc/passwd", "/etc/nothing", "https://example.org/ref.fa"):
        hidden = by_name(await bench.dry_run(plan, reference=place))["count"]
        assert hidden.inputs == InputCheck(checked=3, elsewhere=1), "neither that it is there nor that it is not"


async def test_the_forecast_is_what_the_next_run_does(bench: Bench) -> None:
    plan = plan_of(CHAIN)
    params: dict[str, object] = {"reference": f"{bench.folder}/ref.fa"}
    first = await bench.run(plan, "r-1", **params)
    assert first == {name: (0, n) for name, n in (("count", 3), ("double", 3), ("all", 1), ("split", 4), ("rest", 1), ("tell", 1))}  # fmt: skip
    dry = await bench.dry_run(plan, **params)
    assert forecast(dry) == {
        "count": (3, 0, 0), "double": (3, 0, 0), "all": (1, 0, 0), "split": (0, 0, 4), "rest": (1, 0, 0), "tell": (0, 1, 0),
    }  # fmt: skip
    split = by_name(dry)["split"].reuse
    assert split is not None
    assert split.why == "depends on tasks.all.result"
    second = await bench.run(plan, "r-2", **params)
    assert {name: counts for name, counts in second.items() if name != "split"} == {
        name: (reused, ran) for name, (reused, ran, _) in forecast(dry).items() if name != "split"
    }
    (bench.folder / "in" / "b.txt").write_text("changed")
    dry = await bench.dry_run(plan, **params)
    assert forecast(dry)["count"] == (2, 1, 0)
    assert forecast(dry)["double"] == (2, 0, 1), "what comes after a job that runs is open"
    assert forecast(dry)["all"] == (0, 0, 1)
    third = await bench.run(plan, "r-3", **params)
    assert (third["count"], third["double"][0]) == ((2, 1), 2)


async def test_nothing_is_written(bench: Bench) -> None:
    plan = plan_of(CHAIN)
    params: dict[str, object] = {"reference": f"{bench.folder}/ref.fa"}
    await bench.run(plan, "r-1", **params)

    def everything() -> list[str]:
        with sqlite3.connect(bench.folder / "s.db") as connection:
            return list(connection.iterdump())

    before = everything()
    await bench.dry_run(plan, **params)
    await bench.dry_run(plan_of(CHAIN.replace("wc -c", "wc -l")), **params)
    assert everything() == before


async def test_a_slow_look_ends_and_says_so(bench: Bench) -> None:
    plan = plan_of(CHAIN)
    bench.dry_runner.patience = -1.0
    count = by_name(await bench.dry_run(plan, reference=f"{bench.folder}/ref.fa"))["count"]
    assert count.inputs == InputCheck(elsewhere=4)
    assert count.reuse is not None
    assert (count.reuse.open, "too large" in count.reuse.why) == (3, True)


async def test_lists_that_cannot_be_read_and_rounds_of_loops(bench: Bench) -> None:
    plan = plan_of("""
forestay: 1
name: many
params: {samples: null}
tasks:
  each: {scatter: {sample: "${params.samples}"}, command: [each, "${sample}"], inputs: {in: "/data/${sample}"}}
  lines: {scatter: {line: {lines: /etc/hosts}}, command: [line, "${line}"]}
  watch: {scatter: {file: {watch: "in/*.new", until: {count: 2}}}, command: [w, "${file}"]}
  refine:
    loop: {at_most: 5, until: "tasks.step.exit_code == 0", tasks: {step: {command: [step]}}}
  sub: {flow: inner, params: {n: 1}}
flows:
  inner: {name: inner, params: {n: 0}, tasks: {only: {command: ["true"]}}}
""")
    tasks = by_name(await bench.dry_run(plan))
    assert (tasks["each"].jobs, tasks["each"].open) == (None, "depends on params.samples")
    assert "flow_files" in tasks["lines"].open
    assert tasks["watch"].open == "one for each file that appears at in/*.new"
    assert (tasks["step"].rounds, tasks["step"].inside, tasks["refine"].jobs, tasks["sub"].jobs) == (5, ("refine",), 0, 1)  # fmt: skip
    assert by_name(await bench.dry_run(plan, samples=["a", "b"]))["each"].jobs == 2
    lines = plan_of(CHAIN.replace("in/*.txt", "in/${params.mode}"))
    odd = by_name(await bench.dry_run(lines, pieces=1 << 62, mode="x" * 5000 + "/*", reference="/r"))
    assert odd["split"].open == f"{1 << 63} elements; at most 5000000 are possible"
    assert "too long" in odd["count"].open
    wrong = by_name(await bench.dry_run(plan, samples=3))["each"]
    assert (wrong.jobs, wrong.open) == (None, "scatter sample: ${params.samples} is not a list")


def test_every_flow_has_a_dry_run(tmp_path: Path) -> None:
    """Whatever the flow is and whatever it is given; each task comes once, after those that it waits for."""
    store = SqlJobStore(f"sqlite:///{tmp_path}/s.db")
    with asyncio.Runner() as runner:
        runner.run(store.open())
        bench = Bench(tmp_path, store, SqlDocumentStore(store.database), HandClock())

        @given(flows(), st.booleans(), PARAMS)
        @settings(max_examples=examples(60), deadline=None)
        def tried(flow: Flow, reuse: bool, params: dict[str, object]) -> None:
            plan = planned(replace(flow, reuse=reuse))
            dry = runner.run(bench.dry_run(plan, **params))
            assert sorted(task.name for task in dry.tasks) == sorted(plan.tasks)
            seen: set[str] = set()
            for task in dry.tasks:
                assert seen.issuperset(task.after)
                seen.add(task.name)

        try:
            tried()
        finally:
            runner.run(store.close())
