"""A run that has ended goes on with what it had done."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.execution.test_verbs import CHAIN, ECHO, UNDO, Person, end, states
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World, all_well

from forestay.domain.flows.commands import RunOutcome, StartTimer
from forestay.domain.flows.definition.flow import Deadline, Flow, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import Dimension, JobPattern, LoopPattern, RangeOf
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState
from forestay.domain.flows.execution.resumption import Resumption, TaskAgain, resume_refusal, resume_run
from forestay.domain.jobs.specification import Effects

SEEDS = st.integers(0, 2**32)
TEN = (Dimension("i", RangeOf(0, 10)),)


def resumed(world: World, task: str = "", **changes: object) -> Resumption:
    """From the state as it was written down at the end; all goes well from there on."""
    run = FlowRun.from_plain(world.plan, json.loads(json.dumps(world.run.as_plain())))
    assert resume_refusal(run, task=task, changes=changes) == ""
    world.now += 1
    world.fate, world.finished = all_well, None
    resumption = resume_run(run, at=world.now, task=task, changes=changes)
    world.run = resumption.run
    world.perform(resumption.commands)
    return resumption


def bad(task: str, *elements: int) -> World:
    return World(FLOW, repeats=False, fate=lambda name, index, undo: undo or name != task or index not in elements)


FLOW = Flow(
    "f",
    (Task("fetch", ECHO), Task("align", ECHO, after=("fetch",), scatter=TEN), Task("report", ECHO, after=("align",))),
)


def test_a_failed_run_does_again_what_failed_and_what_comes_after() -> None:
    world = bad("align", 3, 7).run_out()
    assert world.run.outcome is RunOutcome.FAILED
    resumption = resumed(world)
    assert resumption.kept == ("fetch",)
    assert resumption.again == (TaskAgain("align", 2, 10, False), TaskAgain("report", None, None, False))
    assert world.batches["align@2", None].left == {3, 7}
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert {instance.id: instance.round for instance in world.run.instances.values()} == {
        "fetch": 1,
        "align": 2,
        "report": 1,
    }
    assert world.run.instances["align"].well == 10


def test_a_run_that_fails_again_is_resumed_again() -> None:
    world = bad("align", 3, 7).run_out()
    resumed(world)
    world.fate = lambda name, index, undo: index != 7
    assert world.run_out().run.outcome is RunOutcome.FAILED
    assert resumed(world).again[0] == TaskAgain("align", 1, 10, False)
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_a_cancelled_run_keeps_the_elements_that_had_ended() -> None:
    world = bad("none")
    end(world, "fetch@1")
    batch = world.batches["align@1", None]
    world.end_some(batch)
    done = {index for index, well in batch.ends.items() if well}
    assert Person(world)(VerbKind.REMOVE)
    assert world.run_out().run.outcome is RunOutcome.REMOVED
    resumed(world)
    assert world.batches["align@2", None].left == set(range(10)) - done
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_what_was_compensated_is_done_again() -> None:
    flow = Flow("f", (Task("book", ECHO, compensation=UNDO), Task("other", ECHO), Task("pay", ECHO, after=("book",))))
    world = World(flow, repeats=False, fate=lambda name, index, undo: undo or name != "pay")
    end(world, "other@1")
    world.run_out()
    assert (world.run.outcome, world.undone) == (RunOutcome.FAILED, ["book@1!1.1"])
    assert resumed(world).kept == ("other",)
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert [entry.work for entry in world.run.stack] == ["book@2"]


def test_so_is_a_loop_of_which_a_round_was_compensated() -> None:
    loop = LoopPattern((Task("fit", ECHO, compensation=UNDO),), maximum=2)
    flow = Flow("f", (Task("refine", loop), Task("pay", ECHO, after=("refine",))))
    world = World(flow, repeats=False, fate=lambda name, index, undo: undo or name != "pay").run_out()
    assert world.run.undone == ("refine",)
    assert resumed(world).kept == ()
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert world.run.instances["refine"].round == 2


@pytest.mark.parametrize(("kind", "kept"), [(VerbKind.SKIP, ("book",)), (VerbKind.FORCE_COMPLETE, ())])
def test_a_person_says_whether_something_was_compensated(kind: VerbKind, kept: tuple[str, ...]) -> None:
    flow = Flow("f", (Task("book", ECHO, compensation=UNDO), Task("pay", ECHO, after=("book",))))
    world = World(flow, repeats=False, fate=lambda name, index, undo: not undo and name != "pay").run_out()
    assert Person(world)(kind, "!1")
    assert world.run_out().run.outcome is RunOutcome.FAILED
    assert resumed(world).kept == kept


def test_a_task_to_begin_with_is_done_again_with_all_that_comes_after() -> None:
    world = World(CHAIN, repeats=False).run_out()
    assert resume_refusal(world.run) == "the run has completed; name the task to start from"
    assert resumed(world, "b").kept == ("a",)
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert {instance.id: instance.round for instance in world.run.instances.values()} == {"a": 1, "b": 2, "c": 2}


def test_parameters_are_changed_for_what_is_done_again() -> None:
    flow = Flow("f", (Task("a", ECHO),), params={"tries": 1})
    world = World(flow, repeats=False, fate=lambda name, index, undo: False).run_out()
    assert resume_refusal(world.run, changes={"tiers": 2}) == "the run has no parameter tiers"
    resumed(world, tries=2)
    assert (world.run.params, world.run.former) == ({"tries": 2}, ({"tries": 1},))


def test_nobody_holds_a_resumed_run_and_its_time_begins_anew() -> None:
    flow = Flow("f", (Task("a", ECHO),), deadline=Deadline(60))
    world = World(flow, repeats=False)
    ann = Person(world)
    assert ann(VerbKind.SUSPEND)
    assert ann(VerbKind.SUSPEND, "a")
    assert ann(VerbKind.REMOVE)
    world.run_out()
    resumption = resumed(world)
    assert StartTimer("run", world.now + 60_000) in resumption.commands
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_external_effects_are_named() -> None:
    mail = JobPattern(("mail",), effects=Effects.EXTERNAL)
    flow = Flow("f", (Task("mail", mail), Task("later", mail, after=("mail",))))
    world = World(flow, repeats=False, fate=lambda name, index, undo: False).run_out()
    assert resumed(world).again == (TaskAgain("mail", 1, 1, True), TaskAgain("later", None, None, False))


def test_what_runs_is_not_resumed() -> None:
    world = World(CHAIN, repeats=False)
    assert resume_refusal(world.run) == "the run has not ended"
    world.run_out()
    assert resume_refusal(world.run, task="d") == "the run has no task d; its tasks: a, b, c"


@settings(max_examples=examples(200))
@given(flows(policies=st.just(WhenFailed.FAIL)), SEEDS, SEEDS, st.sampled_from([10, 30, 60]), PARAMS)
def test_any_failed_run_that_is_resumed_completes_and_does_nothing_twice_that_it_keeps(
    flow: Flow, seed: int, salt: int, badness: int, params: dict[str, object]
) -> None:
    world = World(flow, seed=seed, fate=fates(salt, badness), params=params, repeats=False).run_out()
    good = World(flow, seed=seed, params=params, repeats=False).run_out()
    if (world.run.outcome, good.run.outcome) != (RunOutcome.FAILED, RunOutcome.COMPLETED):
        return  # it did not fail, or it does so however its jobs end
    before = world.run
    batches = {work: dict(batch.ends) for (work, _), batch in world.batches.items()}
    kept = resumed(world).kept
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    for name in kept:
        assert world.run.instances[name] == before.instances[name]
    for name in before.instances.keys() - set(kept):
        instance = world.run.instances[name]
        old = before.instances[name]
        if instance.earlier and old.done:  # only what the rounds before left
            well = {index for work in instance.earlier for index, good in batches.get(work, {}).items() if good}
            assert not well & set(batches.get(instance.work, {}))
    assert all(
        instance.state in (InstanceState.COMPLETED, InstanceState.SKIPPED) for instance in world.run.instances.values()
    )


def test_states_are_those_of_a_run_that_never_failed() -> None:
    world = bad("align", 3).run_out()
    resumed(world)
    world.run_out()
    assert states(world) == states(World(FLOW, repeats=False).run_out())
