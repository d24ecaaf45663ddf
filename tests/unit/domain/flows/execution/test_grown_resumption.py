"""A run of a Python flow that has ended goes on: its function is replayed and finds again what it had called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from tests.unit.domain.flows.execution.test_grown import Fate, RunDriver, well

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState
from forestay.domain.flows.execution.grown import grown_plan
from forestay.domain.flows.execution.grown_resumption import FormerTask, grown_refusal, resume_grown
from forestay.domain.flows.execution.resumption import Resumption
from forestay.flows import JobFailed, gather, job, scatter

Function = Callable[[], Awaitable[Any]]


def failing(*tasks: str) -> Fate:
    """Jobs of these names fail, whatever their number."""
    return lambda work, index: ValueError if work.partition("@")[0] in tasks else well(work, index)


def ended(driver: RunDriver) -> tuple[FlowRun, dict[str, Any]]:
    """What is left of a run, as it is stored; Temporal sorts the names in a record."""
    state, earlier = json.loads(json.dumps([driver.flow_run.as_plain(), driver.resumption()], sort_keys=True))
    plan = grown_plan("made-up", "v1", json.loads(earlier["tasks"]))
    return FlowRun.from_plain(plan, state), earlier


def refusal(driver: RunDriver, **how: Any) -> str:
    run, earlier = ended(driver)
    return grown_refusal(run, [FormerTask.from_plain(each) for each in earlier["former"]], **how)


def resumed(
    driver: RunDriver, fate: Fate = well, *, task: str = "", changes: Mapping[str, object] | None = None
) -> tuple[RunDriver, Resumption]:
    assert refusal(driver, task=task, changes=changes) == ""
    run, earlier = ended(driver)
    new = RunDriver(fate, earlier | {"tasks": {}, "run": driver.flow_run.as_plain()})
    resumption, former = resume_grown(run, new.former, at=5, task=task, changes=changes)
    new.flow_run, new.former = resumption.run, list(former)
    return new, resumption


def works(driver: RunDriver) -> list[str]:
    return [submitted.order.work for submitted in driver.orders]


async def failed(function: Function, fate: Fate) -> RunDriver:
    driver = RunDriver(fate)
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outcome is RunOutcome.FAILED
    return driver


async def completed(driver: RunDriver, function: Function) -> Mapping[str, object]:
    finish = await driver.run(function)
    assert finish is not None
    assert finish.outcome is RunOutcome.COMPLETED, finish.reason
    return finish.outputs


async def chain() -> dict[str, object]:
    for number in range(5):
        await job("step", ["do", str(number)])
    return {"done": 5}


async def test_only_what_failed_and_what_never_began_runs() -> None:
    driver = await failed(chain, failing("step-3"))
    new, resumption = resumed(driver)
    assert resumption.kept == ("step", "step-2")
    assert [(again.task, again.of, again.external) for again in resumption.again] == [("step-3", 1, False)]
    assert await completed(new, chain) == {"done": 5}
    assert works(new) == ["step-3@2", "step-4@1", "step-5@1"]


async def test_a_run_that_fails_again_is_resumed_again() -> None:
    driver = await failed(chain, failing("step-3"))
    for fails, did in (("step-4", ["step-3@2", "step-4@1"]), ("step-5", ["step-4@2", "step-5@1"])):
        driver, _ = resumed(driver, failing(fails))
        finish = await driver.run(chain)
        assert finish is not None
        assert finish.outcome is RunOutcome.FAILED
        assert works(driver) == did
    new, _ = resumed(driver)
    await completed(new, chain)
    assert works(new) == ["step-5@2"]


async def test_of_a_scatter_only_the_elements_that_failed_run() -> None:
    async def function() -> dict[str, object]:
        many = await scatter("many", ["do", "${n}"], {"n": range(6)})
        return {"well": many.well, "count": many.count}

    driver = await failed(function, lambda work, index: ValueError if index == 4 else well(work, index))
    new, resumption = resumed(driver)
    assert [(again.task, again.elements, again.of) for again in resumption.again] == [("many", 1, 6)]
    assert await completed(new, function) == {"well": 6, "count": 6}
    assert works(new) == ["many@2"]


async def test_a_branch_knows_nothing_of_the_failure_in_another() -> None:
    async def sample(name: str) -> None:
        await job("prepare", ["prepare", name])
        await job("fit", ["fit", name])

    async def function() -> None:
        await gather(sample(name) for name in ("a", "b", "c"))
        await job("report", ["report"])

    driver = await failed(function, failing("prepare-2"))
    new, resumption = resumed(driver)
    assert [again.task for again in resumption.again] == ["prepare-2"]
    await completed(new, function)
    assert works(new)[0] == "prepare-2@2"
    assert len(works(new)) == 3
    assert sorted(new.flow_run.instances) == ["fit", "fit-2", "fit-3", "prepare", "prepare-2", "prepare-3", "report"]


async def test_what_was_done_because_of_a_failure_is_done_again() -> None:
    async def function() -> None:
        try:
            await job("a", ["a"])
        except JobFailed:
            await job("clean", ["clean"])
            raise

    driver = await failed(function, failing("a"))
    new, resumption = resumed(driver, failing("a"))
    assert [again.task for again in resumption.again] == ["a", "clean"]
    await new.run(function)
    assert works(new) == ["a@2", "clean@2"]


async def test_a_failure_that_was_handled_stays() -> None:
    async def function() -> None:
        try:
            await job("fast", ["fast"])
        except JobFailed:
            await job("careful", ["careful"])
        await job("last", ["last"])

    driver = await failed(function, failing("fast", "last"))
    new, resumption = resumed(driver)
    assert resumption.kept == ("fast", "careful")
    await completed(new, function)
    assert works(new) == ["last@2"]


async def test_all_that_failed_side_by_side_run_again() -> None:
    async def function() -> None:
        await gather(job("a", ["a"]), job("b", ["b"]), job("c", ["c"]))

    driver = await failed(function, failing("a", "c"))
    new, resumption = resumed(driver)
    assert resumption.kept == ("b",)
    await completed(new, function)
    assert works(new) == ["a@2", "c@2"]


async def test_what_was_undone_runs_again_with_all_that_came_after() -> None:
    async def function() -> None:
        await job("first", ["first"])
        await job("book", ["book"], compensate=["cancel"])
        await job("check", ["check"])
        await job("pay", ["pay"])

    driver = await failed(function, failing("pay"))
    new, resumption = resumed(driver)
    assert resumption.kept == ("first",)
    await completed(new, function)
    assert works(new) == ["book@2", "check@2", "pay@2"]
    assert [entry.work for entry in new.flow_run.stack] == ["book@2"]


async def test_what_uses_an_output_that_is_made_again_runs_again() -> None:
    async def function() -> None:
        made = await job("make", ["make"], outputs={"model": "m"})
        await gather(use(made.outputs["model"]), other())
        await job("bad", ["bad"])

    async def use(model: str) -> None:
        await job("use", ["use", model])

    async def other() -> None:
        await job("other", ["other"])

    driver = await failed(function, failing("bad"))
    _, resumption = resumed(driver, task="use")
    assert resumption.kept == ("make", "other")
    _, resumption = resumed(driver, task="make")
    assert resumption.kept == ()


async def test_a_cancelled_run_keeps_what_had_ended() -> None:
    driver = RunDriver(lambda work, index: ... if work.startswith("step-2") else well(work, index))
    running = asyncio.ensure_future(driver.run(chain))
    while "step-2" not in driver.flow_run.instances:  # noqa: ASYNC110 - a turn of the loop, not time
        await asyncio.sleep(0)
    running.cancel()
    driver.take(Verb(3, "1", VerbKind.REMOVE, by="ada"))
    while driver.events:
        driver.take(driver.events.pop(0))
    assert driver.flow_run.outcome is RunOutcome.REMOVED
    new, resumption = resumed(driver)
    assert resumption.kept == ("step",)
    assert await completed(new, chain) == {"done": 5}
    assert works(new)[0] == "step-2@2"


async def test_a_call_that_says_something_else_is_new_work() -> None:
    words = ["one"]

    async def function() -> None:
        for word in words:
            await job("say", ["say", word])
        await job("last", ["last"])

    driver = await failed(function, failing("last"))
    words[:] = ["two", "one"]
    new, _ = resumed(driver)
    await completed(new, function)
    assert works(new) == ["say-2@1", "last@2"]


async def test_external_effects_are_named_and_never_repeated_unseen() -> None:
    words = ["one"]

    async def function() -> None:
        await job("mail", ["mail", words[0]], effects="external")
        await job("last", ["last"], effects="external")

    driver = await failed(function, failing("last"))
    _, resumption = resumed(driver)
    assert [(again.task, again.external) for again in resumption.again] == [("last", True)]
    words[0] = "two"
    new, _ = resumed(driver)
    running = asyncio.ensure_future(new.run(function))
    while "mail-2" not in new.flow_run.instances:  # noqa: ASYNC110
        await asyncio.sleep(0)
    held = new.flow_run.instances["mail-2"]
    assert (held.state, held.holders) == (InstanceState.WAITING, ("ada",))
    assert works(new) == []
    new.take(Verb(6, "1", VerbKind.CONTINUE, instance="mail-2", by="ada", holder="ada"))
    finish = await running
    assert finish is not None
    assert works(new) == ["mail-2@1", "last@2"]


async def test_a_function_that_would_fail_again_is_refused_unless_something_changes() -> None:
    async def function() -> None:
        await job("a", ["a"])
        await job("b", ["b"])
        raise ValueError("a wrong line")

    driver = await failed(function, well)
    assert "would fail again in the same way (a wrong line)" in refusal(driver)
    assert refusal(driver, task="b") == ""
    assert refusal(driver, task="c").endswith("its tasks: a, b")
    assert refusal(driver, changes={"n": 1}) == "the run has no parameter n"


async def test_a_completed_run_starts_again_from_a_task() -> None:
    driver = RunDriver(well)
    await completed(driver, chain)
    assert refusal(driver) == "the run has completed; name the task to start from"
    new, resumption = resumed(driver, task="step-4")
    assert resumption.kept == ("step", "step-2", "step-3")
    await completed(new, chain)
    assert works(new) == ["step-4@2", "step-5@2"]


@pytest.mark.parametrize("fails", ["a", "b", "c-2"])
async def test_names_go_on_where_they_were(fails: str) -> None:
    async def function() -> None:
        for name in ("a", "b", "c", "c", "d"):
            await job(name, ["x"])

    driver = await failed(function, failing(fails))
    new, _ = resumed(driver)
    await completed(new, function)
    assert sorted(new.flow_run.instances) == ["a", "b", "c", "c-2", "d"]
    assert new.names == RunDriver(well).names | {"a": 1, "b": 1, "c": 2, "c-2": 1, "d": 1}
