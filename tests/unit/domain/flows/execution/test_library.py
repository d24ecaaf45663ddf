"""Compensations of the library: the version of the moment of completion is kept, and undone last in, first out, whatever is registered later."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import FindCompensation, FinishRun, RunOutcome, SubmitJobs, WorkOrder
from forestay.domain.flows.definition.flow import Compensation, Flow, Task, WhenFailed, all_tasks
from forestay.domain.flows.definition.flow_check import check_flow
from forestay.domain.flows.definition.flow_pattern import AskPattern, Dimension, JobPattern, ListOf, MergePattern
from forestay.domain.flows.definition.flow_plan import MAX_UNDO
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain, planned, version_of
from forestay.domain.flows.events import CompensationFound, JobsEnded, Verb, VerbKind
from forestay.domain.flows.execution.library import action_of, from_library
from forestay.domain.flows.execution.run_waits import WaitsOn, waits_for
from forestay.domain.flows.execution.task_jobs import parameters, task_jobs

ECHO = JobPattern(("echo",))
SEEDS = st.integers(0, 2**32)
OLD, NEW, THIRD = "a" * 64, "b" * 64, "c" * 64
CHAIN = Flow(
    "f",
    (
        Task("a", ECHO, action="reserve"),
        Task("b", ECHO, after=("a",)),
        Task("c", ECHO, after=("b",), when_failed=WhenFailed.HOLD),
    ),
)


def orders(world: World) -> dict[str, WorkOrder]:
    return {command.order.work: command.order for command in world.commands if isinstance(command, SubmitJobs)}


def verb(world: World, kind: VerbKind, instance: str, **more: object) -> str:
    sent = Verb(world.now, f"v{len(world.sent)}", kind, instance=instance, by="ann", **more)  # type: ignore[arg-type]
    world.send(sent)
    answer = world.answers[sent.id]
    return "" if answer.accepted else answer.detail


def held_at_c(library: dict[str, str], flow: Flow = CHAIN, **more: object) -> World:
    """The last task has failed and waits; those before it have completed."""
    return World(flow, fate=lambda task, _index, undo: undo or task != "c", library=library, **more).run_out()  # type: ignore[arg-type]


@pytest.mark.ledger("P2-01", "P2-04")
def test_what_is_registered_when_a_task_completes_is_pushed_and_run_last_in_first_out() -> None:
    library = {"reserve": OLD, "f:b": THIRD}
    world = held_at_c(library)
    assert [(entry.task, entry.action, entry.version) for entry in world.run.stack] == [
        ("a", "reserve", OLD),
        ("b", "f:b", THIRD),
    ]
    library["reserve"] = NEW
    assert verb(world, VerbKind.FORCE_FAIL, "") == ""
    world.run_out()
    assert world.run.outcome is RunOutcome.FAILED
    assert world.undone == ["b@1!2.1", "a@1!1.1"]
    assert (orders(world)["a@1!1.1"].action, orders(world)["a@1!1.1"].version) == ("reserve", OLD)


def test_nothing_is_pushed_for_an_action_that_is_not_registered() -> None:
    world = World(CHAIN, library={"b": OLD, "other:b": OLD}).run_out()
    assert world.run.outcome is RunOutcome.COMPLETED
    assert world.finished is not None
    assert (world.run.stack, world.run.pushed, world.finished.left) == ((), 3, 0)


def test_a_run_that_began_before_there_was_a_library_asks_nothing() -> None:
    world = World(CHAIN).run_out()
    assert not [command for command in world.commands if isinstance(command, FindCompensation)]
    assert "library" not in world.run.as_plain()


def test_the_flows_own_compensation_comes_first() -> None:
    own = Task("a", ECHO, compensation=Compensation(JobPattern(("undo",))))
    world = World(Flow("f", (own,)), library={"f:a": OLD}).run_out()
    assert [(entry.task, entry.action) for entry in world.run.stack] == [("a", "")]


def test_a_run_ends_only_when_the_library_has_answered() -> None:
    world = World(Flow("f", (Task("a", ECHO),)), library={"f:a": OLD}, repeats=False)
    world.send(JobsEnded(world.now, "a@1", well=1, exit_code=0))
    assert world.finished is None
    assert [wait.what for wait in waits_for(world.run)] == [WaitsOn.LIBRARY]
    assert "looked up" in verb(world, VerbKind.REBIND, "!1", changes={"version": NEW, "tries": 1})
    world.send(CompensationFound(world.now, 1, OLD, 3))
    assert world.commands[-1] == FinishRun(RunOutcome.COMPLETED, left=1)


@pytest.mark.ledger("P2-01")
def test_a_person_rebinds_a_compensation_and_it_is_recorded() -> None:
    world = held_at_c({"reserve": OLD})
    assert verb(world, VerbKind.REBIND, "!1", changes={"version": NEW, "tries": 5}, reason="the old one is wrong") == ""
    (entry,) = world.run.stack
    assert (entry.version, entry.most, entry.rebound_by) == (NEW, 5, "ann")
    (report,) = [report for report in world.reports if report.kind == "compensation-rebound"][:1]
    assert (report.instance, report.detail) == (
        "a", f"!1 reserve from {OLD} to {NEW} by ann: the old one is wrong",
    )  # fmt: skip
    verb(world, VerbKind.FORCE_FAIL, "")
    world.run_out()
    assert orders(world)["a@1!1.1"].version == NEW


def test_a_compensation_that_keeps_failing_is_held_and_run_again_when_it_is_rebound() -> None:
    world = held_at_c({"reserve": OLD}, undo_failures={"a": 3})
    verb(world, VerbKind.FORCE_FAIL, "")
    world.run_out()
    assert world.run.stack[-1].held
    assert verb(world, VerbKind.REBIND, "!1", changes={"version": NEW, "tries": 2}) == ""
    world.run_out()
    assert world.run.outcome is RunOutcome.FAILED
    assert [(work, order.version) for work, order in orders(world).items() if order.undo] == [
        ("a@1!1.1", OLD),
        ("a@1!1.2", OLD),
        ("a@1!1.3", OLD),
        ("a@1!1.4", NEW),
    ]


def test_what_cannot_be_rebound() -> None:
    own = Task("d", ECHO, compensation=Compensation(JobPattern(("undo",))))
    world = held_at_c({"reserve": OLD}, Flow("f", (own, *CHAIN.tasks)))
    numbers = {entry.task: f"!{entry.number}" for entry in world.run.stack}
    good = {"version": NEW, "tries": 3}
    assert "flow's own" in verb(world, VerbKind.REBIND, numbers["d"], changes=good)
    assert "not on the compensation stack" in verb(world, VerbKind.REBIND, "!99", changes=good)
    assert "name the version" in verb(world, VerbKind.REBIND, numbers["a"], changes={})
    assert "compensations only" in verb(world, VerbKind.REBIND, "a", changes=good)
    assert "compensations only" in verb(world, VerbKind.REBIND, "", changes=good)


def test_an_answered_question_is_undone_too() -> None:
    ask = Task("approve", AskPattern("Approve?", "", {"properties": {"n": {"type": "integer"}}}), action="approval")
    world = held_at_c({"approval": OLD}, Flow("f", (ask, Task("c", ECHO, after=("approve",)))))
    (order,) = [order for order in orders(world).values() if order.undo]
    undo = Compensation(JobPattern(("withdraw", "${task.outputs.n}", "${task.result.by}", "${run}")))
    plan, bound = from_library(world.plan, order, undo)
    assert task_jobs(plan, bound, tenant="lab", files=lambda *_: "").specification.command == (
        "withdraw", "2", "ben", "c1",
    )  # fmt: skip


def test_a_compensation_refers_to_what_its_task_came_to() -> None:
    job = JobPattern(("do",), outputs={"report": "r.txt"})
    flow = Flow("f", (Task("a", job), Task("c", ECHO, after=("a",))), params={"slot": "front"})
    world = held_at_c({"f:a": OLD}, flow)
    undo = Compensation(
        JobPattern(("undo", "${params.slot}", "${task.result.n}", "${task.exit_code}", "${task.outputs.report}"))
    )
    plan, bound = from_library(world.plan, orders(world)["a@1!1.1"], undo)
    jobs = task_jobs(plan, bound, tenant="lab", files=lambda place, _: f"{place['work']}/{place['output']}")
    assert jobs.specification.command == ("undo", "front", "1", "0", "a@1/report")
    with pytest.raises(ValueError, match=r"task\.result\.id"):
        from_library(world.plan, orders(world)["a@1!1.1"], Compensation(JobPattern(("undo", "${task.result.id}"))))


def test_a_scatter_is_undone_element_by_element() -> None:
    scatter = (Dimension("s", ListOf("${params.samples}")),)
    flow = Flow("f", (Task("a", ECHO, scatter=scatter), Task("c", ECHO, after=("a",))), params={"samples": ["x", "y"]})
    world = held_at_c({"f:a": OLD}, flow)
    plan, bound = from_library(
        world.plan, orders(world)["a@1!1.1"], Compensation(JobPattern(("undo", "${s}", "${index}")))
    )
    assert task_jobs(plan, bound, tenant="lab", files=lambda *_: "").specification.command == (
        "undo", "{s}", "{index}",
    )  # fmt: skip
    assert [element["s"] for element in parameters(plan, bound, range(2), member=lambda *_: "")] == ["x", "y"]


def test_a_large_result_is_not_remembered_and_whoever_needs_it_is_refused() -> None:
    world = held_at_c({"reserve": OLD}, results=lambda _work: "x" * MAX_UNDO)
    verb(world, VerbKind.FORCE_FAIL, "")
    world.run_out()
    with pytest.raises(ValueError, match="too large to be kept"):
        from_library(world.plan, orders(world)["a@1!1.1"], Compensation(JobPattern(("undo", "${task.result}"))))


def test_an_action_is_part_of_the_flow() -> None:
    assert flow_from_plain(flow_as_plain(CHAIN)) == CHAIN
    bare = Flow("f", tuple(Task(task.name, task.pattern, task.after) for task in CHAIN.tasks))
    assert version_of(bare) != version_of(CHAIN)
    assert check_flow(CHAIN) == []


def test_a_wrong_action_is_reported() -> None:
    undo = Compensation(JobPattern(("undo",)))
    tasks = (
        Task("a", ECHO, action="no good"),
        Task("b", ECHO, action="x", compensation=undo),
        Task("c", MergePattern({"n": 1}), action="x"),
        Task("d", JobPattern(("echo",), wait=False), action="x"),
    )
    wrong = [problem.where for problem in check_flow(Flow("f", tasks))]
    assert wrong == [f"tasks.{name}.action" for name in "abcd"]


@settings(max_examples=examples(60))
@given(flow=flows(), params=PARAMS, seed=SEEDS, salt=SEEDS, badness=st.sampled_from([0, 10, 30]))
def test_whatever_is_registered_every_run_comes_to_an_end_and_undoes_from_the_top(
    flow: Flow, params: dict[str, object], seed: int, salt: int, badness: int
) -> None:
    library = {action_of(planned(flow), task): OLD for task in all_tasks(flow.tasks)}
    fate = fates(salt, badness)
    world = World(
        flow, seed=seed, params=params, library=library, fate=lambda task, index, undo: undo or fate(task, index, undo)
    ).run_out()
    numbers = [int(work.rpartition("!")[2].partition(".")[0]) for work in world.undone]
    assert numbers == sorted(numbers, reverse=True)
    if world.finished is not None and world.finished.outcome is RunOutcome.FAILED:
        assert world.run.stack == ()
