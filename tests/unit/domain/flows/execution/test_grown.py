"""Python flows in a world of their own: the function, the desk and `advance`, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from forestay.domain.flows.commands import CancelWork, Command, FinishRun, ListFiles, RunOutcome, SubmitJobs
from forestay.domain.flows.events import Event, FilesListed, JobsEnded, Verb, VerbKind
from forestay.domain.flows.execution.advance import advance
from forestay.domain.flows.execution.flow_run import FlowRun
from forestay.domain.flows.execution.grown import grown_plan, grown_tasks, raised, returned, start_grown
from forestay.flows import Ended, JobFailed, checkpoint, files, gather, job, lines, restored, scatter
from forestay.flows.flow_context import DESK
from forestay.flows.flow_context_base import FlowContextBase, FlowStopped

Fate = Callable[[str, int], object]
"""The result of an element; an exception's type means that it ends badly; `...` that it does not end."""


class Restart(Exception):
    """The function has come to a checkpoint where a new run is to begin."""


class RunDriver(FlowContextBase):
    """A run whose jobs end at once."""

    def __init__(self, fate: Fate, fields: dict[str, Any] | None = None, *, anew: bool = False) -> None:
        super().__init__(fields or {})
        self.fate = fate
        self.anew = anew
        self.events: list[Event] = []
        self.orders: list[SubmitJobs] = []
        self.listed: list[tuple[str, bool]] = []
        self.finish: FinishRun | None = None
        self.flow_run, _ = start_grown(grown_plan("made-up", "v1"), run="c", at=1, params={})
        if fields:
            tasks = fields["tasks"]
            self.flow_run = FlowRun.from_plain(grown_plan("made-up", "v1", tasks), fields["run"])

    def moment(self) -> int:
        return 2

    def now(self) -> float:
        return 0.002

    def owner(self) -> str:
        return "ada"

    async def checkpoint(self, state: object) -> None:
        self.keep(state)
        if self.anew:
            raise Restart

    def perform(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            match command:
                case SubmitJobs(order, first, count):
                    self.orders.append(command)
                    for index in range(first, first + count):
                        self._end(order.work, index, self.fate(order.work, index))
                case ListFiles(work, _, dimension, pattern, lines):
                    self.listed.append((pattern, lines))
                    self.events.append(FilesListed(2, work, dimension, "listing-1", 3))
                case CancelWork(work, count):
                    self.events.append(JobsEnded(3, work, bad=(1 << count) - 1, reason="cancelled"))
                case FinishRun():
                    self.finish = command
                case _:
                    continue

    def _end(self, work: str, index: int, result: object) -> None:
        if result is ...:
            return
        bad = isinstance(result, type)
        bit = 1 << index
        self.events.append(
            JobsEnded(2, work, 0 if bad else bit, bit if bad else 0, 0, int(bad), None if bad else result, "it is bad" if bad else "")
        )  # fmt: skip

    def take(self, event: Event) -> None:
        self.flow_run, commands = advance(self.flow_run, event)
        self.perform(commands)
        self.settle_ends()

    async def run(self, function: Callable[[], Awaitable[Any]]) -> FinishRun | None:
        token = DESK.set(self)
        task = asyncio.ensure_future(function())
        try:
            while not task.done() or self.events:
                await asyncio.sleep(0)
                if self.events:
                    self.take(self.events.pop(0))
            outputs = await task
            self.flow_run, commands = returned(self.flow_run, outputs or {}, 4)
        except (JobFailed, ValueError) as error:
            self.blame(error)
            self.flow_run, commands = raised(self.flow_run, str(error), 4)
        finally:
            DESK.reset(token)
        self.perform(commands)
        while self.events:
            self.take(self.events.pop(0))
        return self.finish


def well(work: str, index: int) -> object:
    return {"work": work, "index": index}


async def test_a_job_gives_its_result() -> None:
    async def function() -> dict[str, object]:
        first = await job("a", "echo ${HOME}", result="r.json")
        again = await job("a", ["cat", first.outputs["x"]] if first.outputs else ["cat"], outputs={"y": "y.txt"})
        return {"first": first.result, "again": again.task}

    driver = RunDriver(well)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outcome is RunOutcome.COMPLETED
    assert finish.outputs == {"first": {"work": "a@1", "index": 0}, "again": "a-2"}
    assert '"command": ["sh", "-c", "echo $${HOME}"]' in driver.orders[0].order.spelt
    assert driver.after == {"a": [], "a-2": ["a"]}


async def test_a_job_names_its_secrets() -> None:
    async def function() -> None:
        await job("a", ["x"], secrets={"DB": "file:db", "T": {"vault": "secret/data/app#t", "as": "file"}})

    driver = RunDriver(well)
    assert await driver.run(function)
    wanted = '"secrets": {"DB": "file:db", "T": {"vault": "secret/data/app#t", "as": "file"}}'
    assert wanted in driver.orders[0].order.spelt


async def test_an_output_is_referred_to_by_later_jobs() -> None:
    async def function() -> None:
        made = await job("make", ["make"], outputs={"model": "model.bin"})
        await job("use", f"use {made.outputs['model']}", inputs={"m": made.outputs["model"]})
        with pytest.raises(KeyError):
            made.outputs["other"]

    driver = RunDriver(well)
    assert await driver.run(function)
    wanted = {"$output": {"run": "c", "work": "make@1", "output": "model"}}
    assert driver.orders[1].order.scope == {"tasks.make.outputs.model": wanted}


async def test_side_by_side_and_what_comes_after() -> None:
    async def function() -> None:
        await job("a", ["a"])
        await gather([job("b", ["b"]), job("c", ["c"])])
        await gather(job("d", ["d"]), job("e", ["e"]))

    driver = RunDriver(well)
    assert await driver.run(function)
    assert driver.after == {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["b", "c"]}


async def test_a_failure_is_an_exception_and_gather_waits_for_all() -> None:
    ended: list[str] = []

    async def function() -> None:
        with pytest.raises(JobFailed) as caught:
            await gather(job("bad", ["x"]), job("good", ["x"]))
        ended.extend(instance.id for instance in driver.flow_run.instances.values() if instance.ended)
        assert (caught.value.task, caught.value.reason, caught.value.exit_code) == ("bad", "it is bad", 1)

    driver = RunDriver(lambda work, _: ValueError if work.startswith("bad") else 1)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outcome is RunOutcome.COMPLETED
    assert sorted(ended) == ["bad", "good"]


async def test_a_scatter_tolerates_what_it_says() -> None:
    async def function() -> dict[str, object]:
        some = await scatter("s", ["x", "${n}", "${HOME}"], {"n": range(4), "m": ["u", "v"]}, tolerate=2)
        with pytest.raises(JobFailed, match="it is bad"):
            await scatter("t", ["x"], {"n": range(4)}, tolerate=0)
        return {"count": some.count, "well": some.well, "bad": some.bad}

    driver = RunDriver(lambda _, index: ValueError if index in (1, 5) else 1)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outputs == {"count": 8, "well": 6, "bad": 2}
    assert '"${n}", "$${HOME}"' in driver.orders[0].order.spelt


async def test_a_scatter_over_what_is_listed_when_it_begins() -> None:
    async def function() -> dict[str, object]:
        some = await scatter("f", ["wc", "${file}"], {"file": files("in/*.txt")})
        rest = await scatter("l", ["x", "${line}"], {"line": lines("list.txt")})
        return {"files": some.count, "lines": rest.count}

    driver = RunDriver(well)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outputs == {"files": 3, "lines": 3}
    assert driver.listed == [("in/*.txt", False), ("list.txt", True)]
    assert driver.orders[0].order.listings == {"file": "listing-1"}


async def test_an_uncaught_failure_undoes_what_was_done() -> None:
    async def function() -> None:
        await job("a", ["a"], compensate=["undo", "a"])
        await job("b", ["b"], compensate={"command": ["undo", "b"], "tries": 2})
        await job("bad", ["x"])

    driver = RunDriver(lambda work, _: ValueError if work.startswith("bad") else 1)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outcome is RunOutcome.FAILED
    assert [jobs.order.work for jobs in driver.orders] == ["a@1", "b@1", "bad@1", "b@1!2.1", "a@1!1.1"]
    assert '["undo", "b"]' in driver.orders[3].order.spelt


async def test_a_checkpoint_carries_the_state_and_what_it_refers_to() -> None:
    async def function() -> dict[str, object]:
        at: dict[str, Any] = restored({"n": 0, "model": ""})
        while at["n"] < 3:
            step = await job("step", ["x", at["model"]], outputs={"model": "m"}, compensate=["undo"])
            at = {"n": at["n"] + 1, "model": step.outputs["model"]}
            await checkpoint(at)
        return at

    fields: dict[str, Any] = {}
    for _ in range(3):
        driver = RunDriver(well, fields, anew=True)
        with pytest.raises(Restart):
            await driver.run(function)
        fields = driver.carried_on() | {"run": driver.flow_run.as_plain(), "tasks": grown_tasks(driver.flow_run)}
        assert list(driver.flow_run.instances) == [f"step-{driver.kept['n']}" if driver.kept["n"] > 1 else "step"]
    assert len(fields["tasks"]) == 3, "what may have to be undone is carried"
    last = RunDriver(well, fields)
    finish = await last.run(function)
    assert finish is not None
    assert finish.outputs == {"n": 3, "model": "${tasks.step-3.outputs.model}"}
    assert last.orders == []


async def test_a_checkpoint_wants_everything_ended() -> None:
    async def function() -> None:
        job("slow", ["x"])
        await checkpoint({})

    with pytest.raises(FlowStopped, match="slow has not"):
        await RunDriver(lambda *_: ...).run(function)


async def test_names_are_never_given_twice() -> None:
    async def function() -> None:
        for name in ("a-2", "a", "a", "a", "a-2"):
            await job(name, ["x"])

    driver = RunDriver(well)
    assert await driver.run(function)
    assert list(driver.flow_run.instances) == ["a-2", "a", "a-3", "a-4", "a-2-2"]


async def test_verbs_reach_what_runs_and_not_what_has_ended() -> None:
    driver = RunDriver(lambda work, _: ... if work.startswith("slow") else 1)
    ends: list[Ended | JobFailed] = []

    async def function() -> None:
        await job("quick", ["x"])
        for name in ("slow", "slow"):
            try:
                ends.append(await job(name, ["x"]))
            except JobFailed as error:
                ends.append(error)

    running = asyncio.ensure_future(driver.run(function))
    while "slow" not in driver.flow_run.instances:  # noqa: ASYNC110 - a turn of the loop, not time
        await asyncio.sleep(0)
    driver.take(Verb(3, "1", VerbKind.REDO, instance="quick", by="ada"))
    assert driver.flow_run.verbs == ("-1",)
    driver.take(Verb(3, "2", VerbKind.SKIP, instance="slow", by="ada"))
    while "slow-2" not in driver.flow_run.instances:  # noqa: ASYNC110
        await asyncio.sleep(0)
    driver.take(Verb(3, "3", VerbKind.REMOVE, instance="slow-2", by="ada"))
    finish = await running
    assert finish is not None
    assert finish.outcome is RunOutcome.COMPLETED
    skipped, removed = ends
    assert isinstance(skipped, Ended)
    assert skipped.state == "skipped"
    assert isinstance(removed, JobFailed)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: job("a b", ["x"]), "not a valid task name"),
        (lambda: job("a", []), "the command is empty"),
        (lambda: job("a", ["x"], memory="much"), "a size is"),
        (lambda: job("a", ["x"], colour="red"), "a job has no colour"),
        (lambda: job("a", ["x"], max_attempts=1000), "1 to 100 attempts"),
        (lambda: job("a", ["x"], secrets={"DB": "file:../x"}), "a.secrets.DB: a secret in a file is a name"),
        (lambda: job("a", ["x"], secrets={"DB": {"file": "x", "to": "y"}}), "DB: expected file:NAME"),
        (lambda: job("a", ["${tasks.gone.outputs.x}"]), "has no task gone any more"),
        (lambda: scatter("a", ["x"], {}), "give the values"),
        (lambda: scatter("a", ["x"], {"n": {1, 2}}), "not a set"),
        (lambda: scatter("a", ["x"], {"n": "${tasks.b.outputs.out}"}), "n is an output of another job"),
        (lambda: scatter("a", ["x"], {"n": ["y" * 70_000]}), "at most 65536"),
        (lambda: scatter("a", ["x"], {"n": [object()]}), "not of JSON types"),
    ],
)
async def test_what_cannot_be_asked_for_is_said(ask: Callable[[], object], words: str) -> None:
    async def function() -> None:
        with pytest.raises((ValueError, TypeError), match=words):
            ask()

    assert await RunDriver(well).run(function)


def test_outside_of_a_run_nothing_can_be_asked_for() -> None:
    with pytest.raises(RuntimeError, match="inside a run"):
        job("a", ["x"])
