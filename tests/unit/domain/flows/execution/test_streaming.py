"""Element k of a scatter over another's outputs begins when its own input is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.execution.test_resumption import resumed
from tests.unit.domain.flows.execution.test_verbs import Person, states
from tests.unit.domain.flows.generated import fates
from tests.unit.domain.flows.world import Batch, Fate, World, all_well

from forestay.domain.flows.commands import FeedShard, RunOutcome, SubmitJobs
from forestay.domain.flows.definition.flow import Compensation, Deadline, Flow, OnFailure, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import Dimension, JobPattern, ListOf, RangeOf, WatchOf
from forestay.domain.flows.definition.flow_plan import plan_flow
from forestay.domain.flows.events import JobsEnded, RoundHeld, VerbKind
from forestay.domain.flows.execution import rounds
from forestay.domain.flows.execution.flow_run import InstanceState
from forestay.domain.flows.scatter import fan_out
from forestay.domain.flows.scatter.shard_run import BatchEnded

SEEDS = st.integers(0, 2**32)
OUT = JobPattern(("make",), outputs={"out": "x"})
UNDO = Compensation(JobPattern(("undo", "${x}")))
UNDO_N = Compensation(JobPattern(("undo", "${n}")))


def over(task: str) -> tuple[Dimension, ...]:
    return (Dimension("x", ListOf("${tasks." + task + ".outputs.out}")),)


def line(count: int = 4, **fields: object) -> Flow:
    """Three scatters, each over the outputs of the one before, and a task that gathers the last."""
    tasks = (
        Task("a", OUT, scatter=(Dimension("n", RangeOf(0, count)),)),
        Task("b", OUT, scatter=over("a")),
        Task("c", OUT, scatter=over("b")),
        Task("all", JobPattern(("gather",), inputs={"in": "${tasks.c.outputs.out}"})),
    )
    return Flow("f", tasks, **fields)  # type: ignore[arg-type]


def bad(task: str, *elements: int) -> Fate:
    return lambda name, index, undo: undo or name != task or index not in elements


def ended(world: World, work: str, *well: int, bad: tuple[int, ...] = ()) -> None:
    """These jobs of a round end."""
    batch = world.batches[work, None]
    assert set(well) | set(bad) <= batch.left, "they have not begun"
    batch.left -= {*well, *bad}
    batch.ends |= dict.fromkeys(well, True) | dict.fromkeys(bad, False)
    world.send(JobsEnded(world.now, work, sum(1 << at for at in well), sum(1 << at for at in bad)))


def begun(world: World, work: str) -> set[int]:
    """The elements of a round that were ever begun."""
    return {at for (name, _), batch in world.batches.items() if name == work for at in {*batch.left, *batch.ends}}


@contextmanager
def small_shards() -> Iterator[None]:
    """Scatters of more than two elements are given to shards of three."""
    with patch.multiple(rounds, DIRECT_JOBS=2, SHARD_JOBS=3), patch.object(fan_out, "SHARD_JOBS", 3):
        yield


class Watchful(World):
    """Looks at every job that is begun: what it is made of must be there."""

    def submitted(self, batch: Batch, elements: set[int]) -> None:
        producer = {"b": "a", "c": "b"}.get(batch.task)
        if producer is None or batch.undo:
            return
        for index in elements:
            works = [other for (_, _), other in self.batches.items() if other.task == producer and not other.undo]
            assert any(other.ends.get(index) for other in works), f"{batch.work} {index} has no input"


def test_an_element_begins_when_its_own_input_is_there() -> None:
    world = World(line(), repeats=False)
    ended(world, "a@1", 2)
    assert begun(world, "b@1") == {2}
    ended(world, "b@1", 2)
    assert begun(world, "c@1") == {2}
    ended(world, "a@1", 0, 3)
    assert begun(world, "b@1") == {0, 2, 3}
    ended(world, "c@1", 2)
    assert ("all@1", None) not in world.batches
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "all@1") == {0}


def test_a_run_that_started_without_streaming_waits_for_all() -> None:
    world = World(line(), repeats=False, streams=False)
    ended(world, "a@1", 0, 1, 2)
    assert ("b@1", None) not in world.batches
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("after", Task("b", OUT, scatter=over("a"), after=("a",))),
        ("condition", Task("b", OUT, scatter=over("a"), when="tasks.a.well > 1")),
        ("deadline", Task("b", OUT, scatter=over("a"), deadline=Deadline(60))),
        ("two", Task("b", OUT, scatter=(*over("a"), Dimension("y", RangeOf(0, 2))))),
        ("elsewhere", Task("b", JobPattern(("x", "${tasks.a.outputs.out}")), scatter=over("a"))),
        ("undo", Task("b", OUT, scatter=over("a"), compensation=Compensation(JobPattern(("x", "${tasks.a.count}"))))),
        ("forget", Task("b", JobPattern(("x",), wait=False), scatter=over("a"))),
    ],
)
def test_who_wants_more_of_the_other_task_waits_for_all_of_it(name: str, task: Task) -> None:
    flow = Flow("f", (Task("a", OUT, scatter=(Dimension("n", RangeOf(0, 3)),)), task))
    assert plan_flow(flow).tasks["b"].producer == ""


def test_so_does_a_scatter_over_what_a_watch_made() -> None:
    watch = Task("a", OUT, scatter=(Dimension("n", WatchOf("in/*", until_count=3)),))
    assert plan_flow(Flow("f", (watch, Task("b", OUT, scatter=over("a"))))).tasks["b"].producer == ""


def test_the_order_names_only_the_element() -> None:
    world = World(line(), repeats=False)
    ended(world, "a@1", 2)
    command = next(
        command for command in world.commands if isinstance(command, SubmitJobs) and command.order.task == "b"
    )
    assert command.order.scope == {"tasks.a.outputs.out": {"$elements": {"run": "c1", "work": "a@1", "output": "out"}}}
    assert (command.count, command.skip, command.of) == (3, 0b011, 4)
    orders = {command.order.task: command.order for command in world.commands if isinstance(command, SubmitJobs)}
    assert (orders["a"].prompt, orders["b"].prompt) == (True, True)


def test_a_failed_element_holds_only_its_line() -> None:
    world = Watchful(line(on_failure=OnFailure.GO_ON), fate=bad("a", 1), repeats=False).run_out()
    assert world.run.outcome is RunOutcome.FAILED
    assert begun(world, "b@1") == begun(world, "c@1") == {0, 2, 3}
    assert states(world) == {"a": "failed", "b": "cancelled", "c": "cancelled", "all": "cancelled"}


@pytest.mark.parametrize("on_failure", [OnFailure.STOP, OnFailure.GO_ON])
def test_the_other_lines_come_to_their_end_though_the_run_fails(on_failure: OnFailure) -> None:
    world = Watchful(line(on_failure=on_failure), repeats=False)
    ended(world, "a@1", 0, bad=(1, 2, 3))
    world.run_out()
    assert begun(world, "c@1") == {0}
    assert world.run.instances["c"].well == 1


def test_what_may_fail_is_left_out() -> None:
    flow = line()
    flow = Flow("f", (Task("a", OUT, scatter=flow.tasks[0].scatter, tolerate=1), *flow.tasks[1:]))
    world = Watchful(flow, fate=bad("a", 1), repeats=False).run_out()
    assert world.run.outcome is RunOutcome.COMPLETED
    assert [(world.run.instances[name].well, world.run.instances[name].count) for name in "abc"] == [(3, 4)] * 3


def test_a_held_task_holds_only_the_lines_that_failed_and_goes_on_with_them() -> None:
    flow = line()
    flow = Flow("f", (Task("a", OUT, scatter=flow.tasks[0].scatter, when_failed=WhenFailed.HOLD), *flow.tasks[1:]))
    world = Watchful(flow, fate=bad("a", 1), repeats=False).run_out()
    assert states(world) == {"a": "faulted", "b": "running", "c": "running", "all": "waiting"}
    assert begun(world, "c@1") == {0, 2, 3}
    world.fate = all_well
    assert Person(world)(VerbKind.REDO, "a", only_failed=True)
    assert begun(world, "a@2") == {1}
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "b@1") == begun(world, "c@1") == {0, 1, 2, 3}
    (last,) = [
        command.order.scope["tasks.a.outputs.out"]
        for command in world.commands
        if isinstance(command, SubmitJobs) and command.order.task == "b" and not command.skip >> 1 & 1
    ]
    assert last == {"$elements": {"run": "c1", "work": "a@2", "output": "out", "earlier": ["a@1"]}}


@pytest.mark.parametrize("kind", [VerbKind.SKIP, VerbKind.FORCE_COMPLETE, VerbKind.FORCE_FAIL])
def test_a_task_that_is_ended_by_hand_gives_the_other_lines_on(kind: VerbKind) -> None:
    world = Watchful(line(), repeats=False)
    ended(world, "a@1", 0, 2)
    assert Person(world)(kind, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert world.run.instances["c"].well == 2


def test_a_task_that_is_removed_takes_what_follows_it_along() -> None:
    world = World(line(on_failure=OnFailure.GO_ON), repeats=False)
    ended(world, "a@1", 0, 2)
    assert Person(world)(VerbKind.REMOVE, "a")
    world.run_out()
    assert states(world) == dict.fromkeys(["a", "b", "c", "all"], "cancelled")


def test_a_failed_task_that_is_skipped_completes_what_follows_without_running_it_again() -> None:
    world = Watchful(line(on_failure=OnFailure.GO_ON), repeats=False)
    ended(world, "a@1", 0, 2, 3, bad=(1,))
    world.batches["b@1", None].holders.add("test")  # they take long
    assert states(world)["a"] == "failed"
    assert Person(world)(VerbKind.SKIP, "a")
    world.batches["b@1", None].holders.clear()
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert world.run.instances["b"].round == 1


def test_a_failed_task_that_is_recovered_gives_its_line_on_after_the_round_that_gave_it_up() -> None:
    world = Watchful(line(on_failure=OnFailure.GO_ON), repeats=False)
    ended(world, "a@1", 0, 2, 3, bad=(1,))
    world.batches["b@1", None].holders.add("test")
    assert Person(world)(VerbKind.REDO, "a", only_failed=True)
    world.batches["b@1", None].holders.clear()
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert (begun(world, "b@1"), begun(world, "b@2")) == ({0, 2, 3}, {1})
    assert world.run.instances["c"].well == 4


def test_the_failed_elements_of_a_task_are_redone_with_their_lines_and_nothing_else() -> None:
    flow = line()
    flow = Flow("f", (Task("a", OUT, scatter=flow.tasks[0].scatter, tolerate=1), *flow.tasks[1:], Task("z", OUT)))
    world = Watchful(flow, fate=bad("a", 1), repeats=False)
    world.batches["z@1", None].holders.add("test")  # so that the run goes on
    world.run_out()
    assert states(world) | {"z": ""} == dict.fromkeys(["a", "b", "c", "all"], "completed") | {"z": ""}
    world.fate = all_well
    assert Person(world)(VerbKind.REDO, "a", only_failed=True)
    world.batches["z@1", None].holders.clear()
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "a@2") == begun(world, "b@2") == begun(world, "c@2") == {1}
    assert begun(world, "all@2") == {0}, "who gathers does it again"


def test_what_was_cancelled_for_a_failed_line_completes_when_that_is_settled() -> None:
    beside = Flow("f", (*line().tasks, Task("z", OUT)), on_failure=OnFailure.GO_ON)
    world = Watchful(beside, fate=bad("a", 1), repeats=False)
    world.batches["z@1", None].holders.add("test")
    world.run_out()
    assert states(world)["c"] == "cancelled"
    assert Person(world)(VerbKind.SKIP, "a")
    world.batches["z@1", None].holders.clear()
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "b@2") == begun(world, "c@2") == set()
    assert world.run.instances["c"].well == 3


def test_what_followed_a_compensated_task_is_done_again_with_it() -> None:
    flow = line()
    tasks = (Task("a", OUT, scatter=flow.tasks[0].scatter, compensation=UNDO_N), *flow.tasks[1:])
    world = Watchful(Flow("f", tasks), fate=bad("b", 1), repeats=False).run_out()
    assert world.run.undone == ("a",)
    resumed(world)
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "a@2") == begun(world, "b@2") == begun(world, "c@2") == {0, 1, 2, 3}


def test_a_shard_is_told_twice_if_all_goes_well() -> None:
    with small_shards():
        world = World(line(7), repeats=False).run_out()
    feeds = [(command.work, command.shard) for command in world.commands if isinstance(command, FeedShard)]
    assert max(map(feeds.count, feeds)) <= 2


def test_a_task_that_is_redone_wholly_is_followed_anew() -> None:
    world = Watchful(line(), repeats=False)
    ended(world, "a@1", 0, 1)
    assert Person(world)(VerbKind.REDO, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "b@2") == {0, 1, 2, 3}


def test_a_suspended_task_holds_the_jobs_that_become_ready() -> None:
    world = World(line(), repeats=False)
    ended(world, "a@1", 0)
    ann = Person(world)
    assert ann(VerbKind.SUSPEND, "b")
    ended(world, "a@1", 1)
    assert world.batches["b@1", None].holders
    assert ann(VerbKind.CONTINUE, "b")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_a_round_that_may_not_begin_is_followed_when_it_does() -> None:
    world = World(line(), repeats=False)
    world.send(RoundHeld(world.now, "a@1", "i1", again=True))
    world.batches.clear()  # nothing of it was begun
    assert states(world)["b"] == "waiting"
    assert Person(world)(VerbKind.CONTINUE, "a", holder="incident:i1")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert begun(world, "b@2") == {0, 1, 2, 3}


def test_only_the_first_jobs_of_a_round_are_checked() -> None:
    world = World(line(), repeats=False)
    ended(world, "a@1", 0)
    ended(world, "a@1", 1)
    checked = [c.order.checked for c in world.commands if isinstance(c, SubmitJobs) and c.order.task == "b"]
    assert checked == [False, True]


def test_more_elements_than_can_be_remembered_are_refused() -> None:
    world = World(line(rounds.MAX_STREAMED + 1), repeats=False)
    assert "100001 outputs; at most 100000" in world.run.instances["b"].reason


def test_a_shard_is_told_by_the_shard_before_it() -> None:
    with small_shards():
        world = World(line(7), repeats=False)
        heard(world)
        batch = world.batches["a@1", 1]
        assert batch.left == {3, 4, 5}
        batch.left.remove(4)
        batch.ends[4] = True
        world._advance_shard("a@1", 1, BatchEnded(well=0b010))
        heard(world)
        assert world.run.instances["a"].well == 0, "the run does not know of it"
        assert begun(world, "b@1") == {4}
        assert world.run_out().run.outcome is RunOutcome.COMPLETED
        assert len([work for work, _ in world.batches if work == "c@1"]) == 3


def heard(world: World) -> None:
    """Shards have heard all that they were told."""
    while world.between:
        world._advance_shard(*world.between.pop(0))


@st.composite
def lines(draw: st.DrawFn, *, policies: st.SearchStrategy[WhenFailed]) -> Flow:
    """Scatters that follow one another, with all that tasks may have."""
    count = draw(st.integers(1, 8))
    scatters = [(Dimension("x", RangeOf(0, count)),), over("a"), over("b")]
    tasks = [
        Task(
            name,
            OUT,
            scatter=scatter,
            tolerate=draw(st.integers(0, 1)),
            compensation=draw(st.sampled_from([None, UNDO])),
            when_failed=draw(policies),
        )
        for name, scatter in zip("abc", scatters, strict=True)
    ]
    gather = Task("all", JobPattern(("gather",), inputs={"in": "${tasks.c.outputs.out}"}))
    beside = Task("side", OUT, scatter=over(draw(st.sampled_from("ab"))), after=draw(st.sampled_from([(), ("all",)])))
    order = draw(st.permutations([*tasks, gather, beside]))
    return Flow("f", tuple(order), on_failure=draw(st.sampled_from(OnFailure)))


POLICIES = st.sampled_from(WhenFailed)
BADNESS = st.sampled_from([10, 30, 60])


@settings(max_examples=examples(150))
@given(lines(policies=POLICIES), SEEDS, st.booleans())
def test_if_nothing_fails_all_comes_to_the_same_as_when_each_task_waits_for_all(
    flow: Flow, seed: int, sharded: bool
) -> None:
    with small_shards() if sharded else nullcontext():
        streamed = Watchful(flow, seed=seed).run_out()
        barrier = World(flow, seed=seed, streams=False).run_out()
    assert streamed.run.outcome is barrier.run.outcome is RunOutcome.COMPLETED
    for name, instance in barrier.run.instances.items():
        other = streamed.run.instances[name]
        assert (other.state, other.well, other.bad, other.count, other.round) == (
            (instance.state, instance.well, instance.bad, instance.count, instance.round)
        )
    assert streamed.run.pushed == barrier.run.pushed


@settings(max_examples=examples(200))
@given(lines(policies=POLICIES), SEEDS, SEEDS, BADNESS, st.booleans())
def test_a_line_gets_as_far_as_its_own_elements_end_well(
    flow: Flow, seed: int, salt: int, badness: int, sharded: bool
) -> None:
    fate = fates(salt, badness)
    with small_shards() if sharded else nullcontext():
        world = Watchful(flow, seed=seed, fate=fate).run_out()
    if flow.on_failure is OnFailure.CANCEL:
        return
    count = max(len(begun(world, "a@1")), 1)
    for index in range(count):
        reached = True
        for name in "abc":
            assert (index in begun(world, f"{name}@1")) == reached
            reached = reached and fate(name, index, False)


@settings(max_examples=examples(200))
@given(lines(policies=st.just(WhenFailed.FAIL)), SEEDS, SEEDS, BADNESS, st.booleans())
def test_a_resumed_run_completes_and_runs_nothing_again_that_it_kept(
    flow: Flow, seed: int, salt: int, badness: int, sharded: bool
) -> None:
    with small_shards() if sharded else nullcontext():
        world = Watchful(flow, seed=seed, fate=fates(salt, badness), repeats=False).run_out()
        if world.run.outcome is not RunOutcome.FAILED:
            return
        before = world.run
        first = {name: {at for at in begun(world, f"{name}@1") if _well(world, f"{name}@1", at)} for name in "abc"}
        resumed(world)
        assert world.run_out().run.outcome is RunOutcome.COMPLETED
    kept = True
    for name in "abc":
        old = before.instances[name]
        # A round of shards that all end well just when the run is cancelled is done again, as without streaming.
        kept = kept and name not in before.undone and (bool(old.done) or old.state is InstanceState.COMPLETED)
        if kept:
            assert not first[name] & begun(world, f"{name}@2")
    for name, producer in (("a", None), ("b", "a"), ("c", "b")):
        instance = world.run.instances[name]
        allowed = world.run.instances[producer].well if producer else instance.count
        assert instance.well + instance.bad == allowed


def _well(world: World, work: str, index: int) -> bool:
    return any(batch.ends.get(index, False) for (name, _), batch in world.batches.items() if name == work)


@settings(max_examples=examples(150))
@given(
    lines(policies=POLICIES),
    SEEDS,
    SEEDS,
    BADNESS,
    st.lists(st.sampled_from(["redo", "part", "skip", "suspend", "complete"]), min_size=1, max_size=4),
)
def test_whatever_people_do_no_element_begins_without_its_input_and_the_run_ends(
    flow: Flow, seed: int, salt: int, badness: int, verbs: list[str]
) -> None:
    world = Watchful(flow, seed=seed, fate=fates(salt, badness), repeats=False)
    person = Person(world)
    for verb in verbs:
        for _ in range(world.random.randint(0, 6)):
            world.step()
        name = world.random.choice("abc")
        match verb:
            case "redo":
                person(VerbKind.REDO, name)
            case "part":
                world.fate = all_well
                person(VerbKind.REDO, name, only_failed=True)
            case "skip":
                person(VerbKind.SKIP, name)
            case "complete":
                person(VerbKind.FORCE_COMPLETE, name)
            case "suspend":
                person(VerbKind.SUSPEND, name)
                person(VerbKind.CONTINUE, name)
    world.fate = all_well
    world.run_out()
    while faulted := [
        name for name, instance in world.run.instances.items() if instance.state is InstanceState.FAULTED
    ]:
        assert person(VerbKind.REDO, faulted[0], only_failed=True) or person(VerbKind.REDO, faulted[0])
        world.run_out()
    assert world.run.outcome is not None
    assert json.dumps(world.run.as_plain())
