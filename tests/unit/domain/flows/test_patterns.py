"""Each pattern of a flow, run to its end in the simulated world."""

from __future__ import annotations

import pytest
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import RunOutcome, StartShard, SubmitJobs
from forestay.domain.flows.definition.flow import Compensation, Deadline, Flow, OnFailure, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import (
    AtMaximum,
    Branch,
    BranchSelection,
    ChoicePattern,
    Dimension,
    FilesOf,
    JobPattern,
    ListOf,
    LoopPattern,
    MergePattern,
    RangeOf,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.execution.flow_run import InstanceState

ECHO = JobPattern(("echo",))
UNDO = Compensation(JobPattern(("undo",)))


def job(name: str, *after: str, **changes: object) -> Task:
    return Task(name, ECHO, after=after, **changes)  # type: ignore[arg-type]


def states(world: World) -> dict[str, str]:
    return {instance.id: instance.state.value for instance in world.run.instances.values()}


def submitted(world: World) -> list[str]:
    return [command.order.instance for command in world.commands if isinstance(command, SubmitJobs)]


def test_a_sequence_runs_one_after_the_other() -> None:
    world = World(Flow("f", (job("c", "b"), job("b", "a"), job("a"))))
    assert submitted(world) == ["a"]
    world.run_out()
    assert submitted(world) == ["a", "b", "c"]
    assert world.finished is not None
    assert world.finished.outcome is RunOutcome.COMPLETED


def test_what_does_not_depend_runs_side_by_side() -> None:
    world = World(Flow("f", (job("a"), job("b"), job("c", "a", "b"))))
    assert submitted(world) == ["a", "b"]
    world.run_out()
    assert submitted(world) == ["a", "b", "c"]


@pytest.mark.ledger("P0-01")
def test_edges_are_of_dependency_of_data_and_of_control() -> None:
    dependency = job("second", "first")
    data = Task("third", JobPattern(("cat", "${tasks.second.outputs.text}")))
    control = job("fourth", when="tasks.third.state == 'completed'")
    flow = Flow(
        "f", (control, data, Task("second", JobPattern(("x",), outputs={"text": "*"}), dependency.after), job("first"))
    )
    plan = planned(flow)
    assert {name: task.before for name, task in plan.tasks.items()} == {
        "first": (),
        "second": ("first",),
        "third": ("second",),
        "fourth": ("third",),
    }
    assert submitted(World(flow).run_out()) == ["first", "second", "third", "fourth"]


def test_a_reference_is_an_edge() -> None:
    use = Task("use", JobPattern(("cat", "${tasks.make.outputs.text}")))
    make = Task("make", JobPattern(("make",), outputs={"text": "out.txt"}))
    world = World(Flow("f", (use, make), outputs={"text": "${tasks.make.outputs.text}"})).run_out()
    assert submitted(world) == ["make", "use"]
    order = next(c.order for c in world.commands if isinstance(c, SubmitJobs) and c.order.instance == "use")
    assert order.scope == {"tasks.make.outputs.text": {"$output": {"run": "c1", "work": "make@1", "output": "text"}}}
    assert world.finished is not None
    assert world.finished.outputs == {"text": {"$output": {"run": "c1", "work": "make@1", "output": "text"}}}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (ListOf(("x", "y", "z")), 3),
        (ListOf("${params.names}"), 2),
        (RangeOf(0, 10, 3), 4),
        (RangeOf(0, "${params.n}"), 7),
        (FilesOf("*.txt"), 5),
        (WatchOf("*.txt", until_quiet=60), 5),
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_a_scatter_has_a_job_for_each_element(
    source: ListOf | RangeOf | FilesOf | WatchOf, count: int, seed: int
) -> None:
    task = job("s", scatter=(Dimension("x", source),))
    world = World(Flow("f", (task,)), seed=seed, params={"names": ["a", "b"], "n": 7}, files=5).run_out()
    assert world.run.instances["s"].count == count
    assert world.run.instances["s"].well == count


def test_several_variables_make_the_product() -> None:
    task = job("s", scatter=(Dimension("x", RangeOf(0, 4)), Dimension("y", ListOf(("a", "b", "c")))))
    world = World(Flow("f", (task,))).run_out()
    assert world.run.instances["s"].count == 12


def test_a_large_scatter_is_split_into_shards_and_its_state_stays_small() -> None:
    task = job("s", scatter=(Dimension("x", RangeOf(0, 1_000_000)),), compensation=UNDO, tolerate=10_000)
    world = World(Flow("f", (task, job("end", "s"))), repeats=False)
    shards = [command for command in world.commands if isinstance(command, StartShard)]
    assert len(shards) == 200
    assert all(shard.count == 5000 for shard in shards)
    world.fate = lambda task, index, undo: index % 1000 != 7
    world.run_out()
    assert states(world) == {"s": "completed", "end": "completed"}
    assert world.run.instances["s"].bad == 1000
    assert world.largest < 300_000


def test_a_watched_listing_grows_past_the_run_into_shards() -> None:
    task = job("s", scatter=(Dimension("x", WatchOf("*.root", until_quiet=60)),))
    world = World(Flow("f", (task,)), files=12_000, repeats=False)
    world.random.randint = lambda a, b: 700 if b == 2 else b  # type: ignore[method-assign]
    world.run_out()
    assert world.run.instances["s"].well == 12_000
    assert [shard.count for shard in world.shards.values()] == [5000, 5000, 1500]


def test_nothing_to_scatter_over_is_nothing_to_do() -> None:
    world = World(Flow("f", (job("s", scatter=(Dimension("x", FilesOf("*")),)),)), files=0).run_out()
    assert states(world) == {"s": "completed"}


def loop(maximum: int = 5, **changes: object) -> Task:
    return Task("loop", LoopPattern((job("fit"), job("judge", "fit")), maximum, **changes))  # type: ignore[arg-type]


def test_a_loop_runs_until_its_condition_holds() -> None:
    task = loop(until="tasks.judge.result.n >= 3", outputs={"n": "${tasks.judge.result.n}"})
    world = World(Flow("f", (task,)), results=lambda work: {"n": int(work.split("/")[1])}).run_out()
    assert world.run.instances["loop"].outputs == {"n": 3}
    assert world.run.instances["loop"].iteration == 3
    assert submitted(world).count("loop@1/2/fit") == 1


def test_a_loop_asks_before_a_round_about_the_one_before() -> None:
    task = loop(while_="not (previous.judge.result.n == 2)")
    world = World(Flow("f", (task,)), results=lambda work: {"n": int(work.split("/")[1])}).run_out()
    assert world.run.instances["loop"].iteration == 2
    assert states(world) == {"loop": "completed"}


def test_a_loop_ends_at_its_maximum() -> None:
    failing = World(Flow("f", (loop(3, until="false"),))).run_out()
    assert states(failing) == {"loop": "failed"}
    going_on = World(Flow("f", (loop(3, until="false", at_maximum=AtMaximum.GO_ON),))).run_out()
    assert states(going_on) == {"loop": "completed"}
    counted = World(Flow("f", (loop(3),))).run_out()
    assert states(counted) == {"loop": "completed"}
    assert submitted(counted).count("loop@1/3/judge") == 1


def choice(take: BranchSelection = BranchSelection.ALL) -> Flow:
    branches = (
        Branch("small", (job("a"),), "params.n < 10"),
        Branch("even", (job("b"), job("b2", "b")), "params.n in [2, 4, 20]"),
    )
    pattern = ChoicePattern(branches, (job("c"),), take, {"state": "${tasks.b2.state}"})
    return Flow("f", (Task("pick", pattern), job("end", "pick")), {"n": None})


@pytest.mark.parametrize(
    ("n", "take", "jobs"),
    [
        (2, BranchSelection.ALL, {"pick@1/small/a", "pick@1/even/b", "pick@1/even/b2", "end"}),
        (2, BranchSelection.FIRST, {"pick@1/small/a", "end"}),
        (20, BranchSelection.ALL, {"pick@1/even/b", "pick@1/even/b2", "end"}),
        (11, BranchSelection.ALL, {"pick@1/otherwise/c", "end"}),
    ],
)
def test_a_choice_takes_the_branches_whose_condition_holds(n: int, take: BranchSelection, jobs: set[str]) -> None:
    world = World(choice(take), params={"n": n}).run_out()
    assert set(submitted(world)) == jobs
    if "pick@1/even/b2" in jobs:
        assert world.run.instances["pick"].outputs == {"state": "completed"}


def test_a_condition_skips_a_task_and_those_after_it_go_on() -> None:
    world = World(Flow("f", (job("a", when="params.go"), job("b", "a")), {"go": False})).run_out()
    assert states(world) == {"a": "skipped", "b": "completed"}


def test_a_merge_gathers_without_a_job() -> None:
    parts = job("parts", scatter=(Dimension("x", RangeOf(0, 3)),))
    merge = Task("all", MergePattern({"n": "${tasks.parts.count}", "words": ["${tasks.one.result.n}", "x"]}))
    world = World(Flow("f", (merge, parts, job("one")), outputs={"n": "${tasks.all.outputs.n}"})).run_out()
    assert world.run.instances["all"].outputs == {"n": 3, "words": [1, "x"]}
    assert world.finished is not None
    assert world.finished.outputs == {"n": 3}


def test_a_sub_flow_is_a_run_of_its_own() -> None:
    inner = Flow("inner", (job("x"),))
    flow = Flow("f", (Task("sub", SubflowPattern("inner", {"p": "${run}"})), job("end", "sub")), flows={"inner": inner})
    world = World(flow).run_out()
    assert states(world) == {"sub": "completed", "end": "completed"}
    assert world.run.instances["sub"].outputs == {"n": 0}


def test_a_place_is_bound_when_it_is_reached() -> None:
    world = World(Flow("f", (Task("place", WorkletPattern("inspect")),))).run_out()
    assert states(world) == {"place": "completed"}
    assert world.run.instances["place"].bound == "f" * 64


def test_fire_and_forget_does_not_wait_and_is_not_affected() -> None:
    task = Task("note", JobPattern(("mail",), wait=False))
    world = World(Flow("f", (task, job("end", "note"))), fate=lambda task, index, undo: task != "note").run_out()
    assert states(world) == {"note": "completed", "end": "completed"}


@pytest.mark.parametrize("policy", WhenFailed)
def test_what_a_failure_means(policy: WhenFailed) -> None:
    flow = Flow("f", (job("a", when_failed=policy), job("b", "a")))
    world = World(flow, fate=lambda task, index, undo: task != "a").run_out()
    expected = {
        WhenFailed.FAIL: {"a": "failed", "b": "cancelled"},
        WhenFailed.HOLD: {"a": "faulted", "b": "waiting"},
        WhenFailed.IGNORE: {"a": "failed", "b": "completed"},
    }
    assert states(world) == expected[policy]


def test_on_failure_decides_about_the_rest() -> None:
    tasks = (job("bad"), job("after", "bad"), job("other"), job("later", "other"))
    ends = {}
    for policy in OnFailure:
        world = World(Flow("f", tasks, on_failure=policy), repeats=False, fate=lambda task, index, undo: task != "bad")
        world.end_some(world.batches["bad@1", None])
        world.run_out()
        ends[policy] = states(world)
    assert ends[OnFailure.STOP] == {"bad": "failed", "after": "cancelled", "other": "completed", "later": "cancelled"}
    assert ends[OnFailure.CANCEL] == {"bad": "failed", "after": "cancelled", "other": "cancelled", "later": "cancelled"}
    assert ends[OnFailure.GO_ON] == {"bad": "failed", "after": "cancelled", "other": "completed", "later": "completed"}


def test_a_late_instance_is_cancelled_and_fails() -> None:
    world = World(Flow("f", (job("a", deadline=Deadline(60)),)))
    world.fire("a@1")
    world.run_out()
    assert world.run.instances["a"].state is InstanceState.FAILED
    assert world.run.instances["a"].reason == "it did not finish within 60 s"


def test_a_late_run_is_stopped_and_compensated() -> None:
    flow = Flow("f", (job("a", compensation=UNDO), job("b", "a")), deadline=Deadline(60))
    world = World(flow)
    world.end_some(world.batches["a@1", None])
    world.fire("run")
    world.run_out()
    assert world.finished is not None
    assert world.finished.outcome is RunOutcome.FAILED
    assert world.undone == ["a@1!1.1"]


def test_inner_tasks_see_the_values_of_every_block_around_them() -> None:
    inner = Task("inner", JobPattern(("x", "${tasks.beside.result.n}", "${tasks.root.result.n}", "${iteration}")))
    choose = Task("choose", ChoicePattern((Branch("yes", (inner,), "tasks.beside.result.n == 1"),)))
    around = LoopPattern((Task("beside", JobPattern(("x",), result="r")), choose), 2)
    flow = Flow("f", (Task("loop", around), Task("root", JobPattern(("x",), result="r"))))
    world = World(flow, repeats=False).run_out()
    scopes = [
        command.order.scope
        for command in world.commands
        if isinstance(command, SubmitJobs) and command.order.task == "inner"
    ]
    assert scopes == [{"tasks.beside.result.n": 1, "tasks.root.result.n": 1, "iteration": n} for n in (1, 2)]
