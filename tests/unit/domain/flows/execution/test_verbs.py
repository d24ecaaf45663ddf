"""What people and rules may do to a run, and that nothing they do leaves it stuck."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import (
    CancelWork,
    ContinueWork,
    HoldWork,
    RunOutcome,
    SignalAncestors,
    StopWatch,
    SubmitJobs,
    UndoRun,
)
from forestay.domain.flows.definition.flow import Compensation, Deadline, Flow, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import (
    Dimension,
    FilesOf,
    JobPattern,
    LoopPattern,
    Pattern,
    RangeOf,
    Source,
    SubflowPattern,
    WatchOf,
    WorkletPattern,
)
from forestay.domain.flows.events import FilesAppeared, Verb, VerbKind
from forestay.domain.flows.execution.advance import undo_run
from forestay.domain.flows.execution.flow_run import MAX_VERBS, FlowRun, InstanceState, RunPhase
from forestay.domain.flows.execution.messages import event_from_plain
from forestay.domain.flows.execution.run_waits import WaitsOn, waits_for
from forestay.domain.flows.execution.scope import MAX_FORMER
from forestay.domain.flows.scatter.elements import indexes
from forestay.domain.flows.scatter.fan_out import bits_of

ECHO = JobPattern(("echo",))
UNDO = Compensation(JobPattern(("undo",)), tries=2)
CHAIN = Flow("f", (Task("a", ECHO, compensation=UNDO), Task("b", ECHO, after=("a",)), Task("c", ECHO, after=("b",))))


class Person:
    """Sends verbs to a run."""

    def __init__(self, world: World, name: str = "ann") -> None:
        self.world = world
        self.name = name
        self.sent = 0

    def __call__(self, kind: VerbKind, instance: str = "", **more: object) -> bool:
        self.sent += 1
        self.world.now += 1
        verb = Verb(self.world.now, f"{self.name}-{self.sent}", kind, instance, by=self.name, **more)  # type: ignore[arg-type]
        self.world.send(verb)
        return self.world.answers[verb.id].accepted


def end(world: World, work: str) -> None:
    world.end_some(world.batches[work, None])


def states(world: World) -> dict[str, str]:
    return {instance.id: instance.state.value for instance in world.run.instances.values()}


def test_a_suspended_instance_may_finish_and_its_end_is_held() -> None:
    world = World(CHAIN, repeats=False)
    ann = Person(world)
    assert ann(VerbKind.SUSPEND, "a")
    assert HoldWork("a@1", "a/ann", 1, 0) in world.commands
    end(world, "a@1")
    assert states(world)["a"] == "running"
    assert [wait.what for wait in waits_for(world.run)] == [WaitsOn.HOLDER]
    assert ann(VerbKind.CONTINUE, "a")
    assert states(world) == {"a": "completed", "b": "running", "c": "waiting"}


def test_continue_takes_away_the_own_holder_only() -> None:
    world = World(CHAIN, repeats=False)
    ann, bob = Person(world, "ann"), Person(world, "bob")
    assert ann(VerbKind.SUSPEND)
    assert bob(VerbKind.SUSPEND, "a")
    assert not bob(VerbKind.CONTINUE)
    assert ann(VerbKind.CONTINUE)
    assert ContinueWork("a@1", "run/ann", 1, 0) in world.commands
    assert world.batches["a@1", None].holders == {"a/bob"}
    end(world, "a@1")
    assert states(world)["b"] == "waiting"
    assert bob(VerbKind.CONTINUE, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_a_suspended_run_begins_nothing_and_does_not_finish() -> None:
    world = World(CHAIN, repeats=False)
    ann = Person(world)
    ann(VerbKind.SUSPEND)
    end(world, "a@1")
    assert states(world) == {"a": "running", "b": "waiting", "c": "waiting"}
    ann(VerbKind.CONTINUE)
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_redo_runs_an_instance_and_all_that_came_after_it_again() -> None:
    world = World(CHAIN, repeats=False)
    end(world, "a@1")
    end(world, "b@1")
    assert Person(world)(VerbKind.REDO, "a")
    assert CancelWork("c@1", 1, 0) in world.commands
    world.run_out()
    assert {instance.id: instance.round for instance in world.run.instances.values()} == {"a": 2, "b": 2, "c": 2}
    assert [entry.work for entry in world.run.stack] == ["a@1", "a@2"]


def test_a_skipped_instance_lets_the_next_go_on() -> None:
    world = World(CHAIN, repeats=False)
    assert Person(world)(VerbKind.SKIP, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert states(world) == {"a": "skipped", "b": "completed", "c": "completed"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (VerbKind.FORCE_COMPLETE, {"a": "forced_complete", "b": "completed", "c": "completed"}),
        (VerbKind.FORCE_FAIL, {"a": "failed", "b": "completed", "c": "completed"}),
        (VerbKind.REMOVE, {"a": "cancelled", "b": "cancelled", "c": "cancelled"}),
    ],
)
def test_an_instance_is_ended_by_hand(kind: VerbKind, expected: dict[str, str]) -> None:
    world = World(CHAIN, repeats=False)
    assert Person(world)(kind, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert states(world) == expected


@pytest.mark.parametrize(
    ("kind", "outcome", "undone"),
    [
        (VerbKind.FORCE_COMPLETE, RunOutcome.FORCED_COMPLETE, []),
        (VerbKind.FORCE_FAIL, RunOutcome.FAILED, ["a@1!1.1"]),
        (VerbKind.REMOVE, RunOutcome.REMOVED, []),
    ],
)
def test_a_run_is_ended_by_hand(kind: VerbKind, outcome: RunOutcome, undone: list[str]) -> None:
    world = World(CHAIN, repeats=False)
    end(world, "a@1")
    assert Person(world)(kind)
    assert world.run_out().run.outcome is outcome
    assert world.undone == undone
    assert world.finished is not None
    assert world.finished.left == 1 - len(undone)


def test_a_restarted_run_begins_anew_and_can_still_be_undone() -> None:
    world = World(CHAIN, repeats=False)
    ann = Person(world)
    end(world, "a@1")
    assert ann(VerbKind.RESTART)
    world.end_some(world.batches["b@1", None])
    assert states(world) == {"a": "running", "b": "waiting", "c": "waiting"}
    end(world, "a@2")
    assert ann(VerbKind.FORCE_FAIL)
    world.run_out()
    assert world.undone == ["a@2!2.1", "a@1!1.1"]


def test_a_failed_instance_is_recovered_before_the_run_is_undone() -> None:
    flow = Flow("f", (Task("a", ECHO), Task("b", ECHO, after=("a",)), Task("other", ECHO)))
    world = World(flow, repeats=False, fate=lambda task, index, undo: task != "a")
    end(world, "a@1")
    assert world.run.phase is RunPhase.STOPPING
    world.fate = lambda task, index, undo: True
    assert Person(world)(VerbKind.REDO, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_an_instance_that_is_held_when_it_fails_waits_for_a_word() -> None:
    flow = Flow("f", (Task("a", ECHO, when_failed=WhenFailed.HOLD), Task("b", ECHO, after=("a",))))
    world = World(flow, repeats=False, fate=lambda task, index, undo: task != "a").run_out()
    assert world.run.instances["a"].state is InstanceState.FAULTED
    assert [wait.what for wait in waits_for(world.run)] == [WaitsOn.VERDICT]
    assert [report.kind for report in world.reports] == ["task-faulted"]
    assert Person(world)(VerbKind.FORCE_COMPLETE, "a")
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


def test_replace_runs_another_flow_in_the_place_of_an_instance() -> None:
    world = World(CHAIN, repeats=False)
    assert Person(world)(VerbKind.REPLACE, "b", changes={"flow": "e" * 64, "params": {"x": 1}})
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
    assert world.run.instances["b"].outputs == {"n": 0}


def test_a_loop_is_redone_as_a_whole_and_inside() -> None:
    loop = Task("loop", LoopPattern((Task("x", ECHO), Task("y", ECHO, after=("x",))), 2))
    world = World(Flow("f", (loop,)), repeats=False)
    ann = Person(world)
    end(world, "loop@1/1/x@1")
    assert ann(VerbKind.REDO, "loop@1/1/x")
    end(world, "loop@1/1/y@1")
    end(world, "loop@1/1/x@2")
    assert ann(VerbKind.REDO, "loop")
    world.run_out()
    done = [command.order.work for command in world.commands if isinstance(command, SubmitJobs)]
    assert done[:4] == ["loop@1/1/x@1", "loop@1/1/y@1", "loop@1/1/x@2", "loop@1/1/y@2"]
    assert done[4:] == ["loop@2/1/x@1", "loop@2/1/y@1", "loop@2/2/x@1", "loop@2/2/y@1"]


def test_raise_reports_and_changes_nothing_else() -> None:
    world = World(CHAIN, repeats=False)
    before = states(world)
    assert Person(world)(VerbKind.RAISE, "a", changes={"type": "constraint"}, reason="too hot")
    assert (world.reports[-1].kind, world.reports[-1].instance, world.reports[-1].detail) == (
        "constraint",
        "a",
        "too hot",
    )
    assert states(world) == before


def test_a_verb_for_all_runs_is_not_for_those_that_began_later() -> None:
    world = World(CHAIN, repeats=False)
    assert not Person(world)(VerbKind.REMOVE, begun_by=world.run.started - 1)
    assert world.run.phase is RunPhase.RUNNING
    assert Person(world, "eve")(VerbKind.REMOVE, begun_by=world.run.started)
    assert world.run_out().run.outcome is RunOutcome.REMOVED


@pytest.mark.parametrize(("kind", "remove"), [(VerbKind.REMOVE, True), (VerbKind.FORCE_FAIL, False)])
def test_what_a_removed_run_started_is_removed_too(kind: VerbKind, remove: bool) -> None:
    world = World(CHAIN, repeats=False)
    Person(world)(kind)
    assert CancelWork("a@1", 1, 0, remove) in world.commands


def test_a_verb_for_ancestors_is_handed_on_with_its_id() -> None:
    world = World(CHAIN, repeats=False)
    assert Person(world)(VerbKind.SUSPEND, ancestors=True)
    (signal,) = (command for command in world.commands if isinstance(command, SignalAncestors))
    assert event_from_plain(signal.verb) == world.sent[-1]


@pytest.mark.parametrize(
    ("kind", "instance", "more", "words"),
    [
        (VerbKind.SKIP, "nothing", {}, "no task"),
        (VerbKind.SKIP, "", {}, "to tasks only"),
        (VerbKind.REDO, "b", {"round": 7}, "in round"),
        (VerbKind.CONTINUE, "b", {}, "did not suspend"),
        (VerbKind.SKIP, "!1", {}, "not the compensation"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    kind: VerbKind, instance: str, more: dict[str, object], words: str
) -> None:
    world = World(CHAIN, repeats=False)
    assert not Person(world)(kind, instance, **more)
    assert words in world.answers["ann-1"].detail


def test_a_forgotten_verb_is_not_done_twice() -> None:
    world = World(CHAIN, repeats=False)
    redo = Verb(5, "first", VerbKind.REDO, "a", by="ann")
    world.send(redo)
    end(world, "a@1")
    for number in range(MAX_VERBS):
        world.send(Verb(10 + number, f"v{number}", VerbKind.RAISE, "a", by="bob"))
    assert len(world.run.verbs) == MAX_VERBS
    before = world.run
    world.send(redo)
    assert world.run == before
    assert not world.answers["first"].accepted


def test_a_compensation_that_fails_is_tried_again_then_held_never_dropped() -> None:
    flow = Flow("f", (Task("a", ECHO, compensation=UNDO), Task("b", ECHO, after=("a",), compensation=UNDO), Task("bad", ECHO, after=("b",))))  # fmt: skip
    world = World(flow, fate=lambda task, index, undo: task != "bad", undo_failures={"b": 3, "a": 1}, repeats=False)
    world.run_out()
    assert world.run.phase is RunPhase.COMPENSATING
    assert [wait.what for wait in waits_for(world.run)] == [WaitsOn.COMPENSATION]
    assert world.reports[-1].kind == "compensation-held"
    assert [entry.instance for entry in world.run.stack] == ["a", "b"]
    ann = Person(world)
    assert not ann(VerbKind.SKIP, "!1")
    assert ann(VerbKind.REDO, "!2")
    world.run_out()
    assert world.undone == ["b@1!2.4", "a@1!1.2"]
    assert world.run.outcome is RunOutcome.FAILED
    assert world.run.settled == ()


def test_a_compensation_is_settled_only_by_a_person_and_on_record() -> None:
    flow = Flow("f", (Task("a", ECHO, compensation=UNDO), Task("bad", ECHO, after=("a",))))
    world = World(flow, fate=lambda task, index, undo: task != "bad", undo_failures={"a": 99}).run_out()
    assert Person(world)(VerbKind.SKIP, "!1", reason="done by hand")
    assert world.run.outcome is RunOutcome.FAILED
    (settled,) = world.run.settled
    assert (settled.instance, settled.verb, settled.by, settled.reason) == ("a", "skip", "ann", "done by hand")


def test_only_the_elements_that_ended_well_are_undone() -> None:
    scatter = (Dimension("x", RangeOf(0, 12_000)),)
    flow = Flow("f", (Task("a", ECHO, scatter=scatter, compensation=UNDO),))
    world = World(flow, repeats=False, fate=lambda task, index, undo: undo or index % 3 > 0).run_out()
    undone = {index for (work, _), batch in world.batches.items() if "!" in work for index in batch.ends}
    assert undone == {index for index in range(12_000) if index % 3}
    assert world.run.outcome is RunOutcome.FAILED


@settings(max_examples=examples(200))
@given(flows(), st.integers(0, 2**32), st.sampled_from([0, 10, 40]), PARAMS)
def test_no_verb_leaves_a_run_stuck(flow: Flow, seed: int, badness: int, params: dict[str, object]) -> None:
    undo_failures = {f"t{number}": seed % 4 for number in range(0, 20, 3)}
    world = World(flow, seed=seed, fate=fates(seed, badness), params=params, undo_failures=undo_failures)
    chance = Random(seed)
    people = [Person(world, "ann"), Person(world, "bob")]
    for _ in range(60):
        if not world.step() and world.finished:
            break
        if chance.random() < 0.3:
            top = world.run.stack[-1].number if world.run.stack else 1
            kinds = [kind for kind in VerbKind if kind is not VerbKind.REMOVE or chance.random() < 0.1]
            instance = chance.choice(["", f"!{top}", *world.run.instances, *world.run.instances, *world.run.instances])
            kind = chance.choice(kinds)
            if not instance and kind in (VerbKind.FORCE_COMPLETE, VerbKind.REMOVE) and chance.random() < 0.8:
                continue
            changes = {"priority": 3} if kind is VerbKind.REPLACE else {}
            chance.choice(people)(kind, instance, changes=changes, only_failed=chance.random() < 0.3)
        if world.timers and chance.random() < 0.05:
            world.fire(chance.choice(sorted(world.timers)))
    settle_everything(world, people[0])
    assert world.finished is not None
    if world.run.outcome is RunOutcome.FAILED:
        undone = [int(work.rpartition("!")[2].partition(".")[0]) for work in world.undone]
        settled = [other_settled.number for other_settled in world.run.settled]
        assert sorted(undone + settled) == list(range(1, world.run.pushed + 1))
        assert undone == sorted(undone, reverse=True)


def settle_everything(world: World, person: Person) -> None:
    """Let everyone go, and answer everything that waits for a person, until the run has ended."""
    for _ in range(1000):
        world.run_out()
        if world.finished is not None:
            return
        for wait in waits_for(world.run):
            if wait.what is WaitsOn.HOLDER:
                person(VerbKind.CONTINUE, wait.instance, holder=wait.detail)
            elif wait.what is WaitsOn.VERDICT:
                person(VerbKind.SKIP, wait.instance)
            elif wait.what is WaitsOn.COMPENSATION:
                person(VerbKind.SKIP, wait.detail)
    raise AssertionError(f"the run waits for ever: {waits_for(world.run)}")


def test_a_verdict_counts_also_for_what_is_suspended() -> None:
    world = World(CHAIN, repeats=False)
    ann = Person(world)
    ann(VerbKind.SUSPEND, "a")
    assert ann(VerbKind.SKIP, "a")
    end(world, "a@1")
    assert states(world)["a"] == "skipped"


def test_a_watch_that_nobody_needs_is_stopped() -> None:
    task = Task("w", ECHO, scatter=(Dimension("file", WatchOf("*.root", until_quiet=60)),))
    world = World(Flow("f", (task,)), repeats=False, files=100)
    while not world.run.instances["w"].fan_out:
        world.step()
    assert Person(world)(VerbKind.SKIP, "w")
    assert StopWatch("w@1") in world.commands
    assert world.watches == {}
    assert world.run_out().run.outcome is RunOutcome.COMPLETED


@pytest.mark.parametrize("source", [RangeOf(0, 40), RangeOf(0, 12_000), FilesOf("*.txt"), WatchOf("*", until_quiet=9)])
def test_only_what_failed_of_a_scatter_is_done_again(source: Source) -> None:
    scatter = (Dimension("x", source),)
    make = Task(
        "a",
        JobPattern(("make",), outputs={"out": "*"}),
        scatter=scatter,
        compensation=UNDO,
        when_failed=WhenFailed.HOLD,
    )
    use = Task("b", JobPattern(("use", "${tasks.a.outputs.out}")))
    world = World(
        Flow("f", (make, use)), repeats=False, files=40, fate=lambda task, index, undo: index % 7 != 3
    ).run_out()
    count = world.run.instances["a"].count
    assert world.run.instances["a"].state is InstanceState.FAULTED
    world.fate = lambda task, index, undo: index != 3
    ann = Person(world)
    assert ann(VerbKind.REDO, "a", only_failed=True)
    world.run_out()
    world.fate = lambda task, index, undo: True
    assert ann(VerbKind.REDO, "a", only_failed=True)
    world.run_out()
    again = [
        {i for (work, _), batch in world.batches.items() if work == f"a@{n}" for i in batch.ends} for n in (1, 2, 3)
    ]
    assert again == [set(range(count)), {i for i in range(count) if i % 7 == 3}, {3}]
    assert (world.run.instances["a"].well, world.run.instances["a"].bad, world.run.instances["a"].count) == (
        count,
        0,
        count,
    )
    order = next(
        command.order for command in world.commands if isinstance(command, SubmitJobs) and command.order.instance == "b"
    )
    outputs = {"run": "c1", "work": "a@3", "output": "out", "count": count, "well": count, "earlier": ["a@2", "a@1"]}
    assert order.scope == {"tasks.a.outputs.out": {"$outputs": outputs}}
    undone = [i for entry in world.run.stack for piece in entry.pieces for i in indexes(bits_of(piece) << piece.first)]
    assert sorted(undone) == list(range(count))


def test_what_did_not_fail_in_part_is_redone_whole() -> None:
    world = World(CHAIN, repeats=False)
    assert not Person(world)(VerbKind.REDO, "a", only_failed=True)
    assert "redo it completely" in world.answers["ann-1"].detail


def test_jobs_that_appear_while_a_run_is_suspended_are_held() -> None:
    task = Task("w", ECHO, scatter=(Dimension("file", WatchOf("*", until_quiet=60)),))
    world = World(Flow("f", (task,)), repeats=False, files=9)
    Person(world)(VerbKind.SUSPEND)
    Person(world, "bob")(VerbKind.SUSPEND, "w")
    world.send(FilesAppeared(9, "w@1", "file", "l", 4))
    (submitted,) = (command for command in world.commands if isinstance(command, SubmitJobs))
    assert (submitted.count, submitted.holders) == (4, ("run/ann", "w/bob"))


@pytest.mark.parametrize("pattern", [SubflowPattern("inner"), WorkletPattern("place")])
def test_a_sub_run_that_completed_is_undone_by_its_own_compensations(pattern: Pattern) -> None:
    inner = Flow("inner", (Task("x", ECHO, compensation=UNDO),))
    tasks = (Task("a", ECHO, compensation=UNDO), Task("sub", pattern, after=("a",)), Task("bad", ECHO, after=("sub",)))
    flows = {"inner": inner} if isinstance(pattern, SubflowPattern) else {}
    world = World(Flow("f", tasks, flows=flows), fate=lambda task, index, undo: task != "bad").run_out()
    assert world.undone == ["sub@1!2.1", "a@1!1.1"]
    assert UndoRun("sub@1!2.1", "sub@1", 0) in world.commands
    assert world.run.outcome is RunOutcome.FAILED


def test_a_completed_run_is_undone_from_its_last_state() -> None:
    world = World(CHAIN, repeats=False).run_out()
    assert world.finished is not None
    assert world.finished.left == 1
    world.run, commands = undo_run(FlowRun.from_plain(world.plan, world.run.as_plain()), at=9)
    assert undo_run(world.run, at=9) == (world.run, ())
    world.finished = None
    world.perform(commands)
    world.run_out()
    assert world.undone == ["a@1!1.1"]
    assert world.run.outcome is RunOutcome.UNDONE
    assert undo_run(world.run, at=9) == (world.run, ())


def test_a_compensation_of_the_task_itself_comes_instead_of_those_inside() -> None:
    inner = Flow("inner", (Task("x", ECHO),))
    tasks = (Task("sub", SubflowPattern("inner"), compensation=UNDO), Task("bad", ECHO, after=("sub",)))
    world = World(Flow("f", tasks, flows={"inner": inner}), fate=lambda task, index, undo: task != "bad").run_out()
    assert world.undone == ["sub@1!1.1"]
    assert not any(isinstance(command, UndoRun) for command in world.commands)


def test_no_timer_of_what_is_inside_outlives_a_stopped_run() -> None:
    late = Deadline(60)
    inner = Task("inner", LoopPattern((Task("x", ECHO),), 2), deadline=late)
    flow = Flow("f", (Task("outer", LoopPattern((inner,), 2)), Task("bad", ECHO)))
    world = World(flow, repeats=False, fate=lambda task, index, undo: task != "bad")
    end(world, "bad@1")
    world.run_out()
    assert world.run.outcome is RunOutcome.FAILED
    assert world.timers == {}


def test_data_that_are_set_are_seen_by_what_begins_afterwards() -> None:
    tasks = (
        Task("a", JobPattern(("echo", "${params.venue}"))),
        Task("b", JobPattern(("echo", "${params.venue}")), after=("a",)),
    )
    world = World(
        Flow("f", tasks, params={"venue": "arena", "seats": 9}, outputs={"venue": "${params.venue}"}), repeats=False
    )
    ann = Person(world)
    assert ann(VerbKind.SET_DATA, changes={"venue": "hall"})
    assert world.run.params == {"venue": "hall", "seats": 9}
    end(world, "a@1")
    orders = {command.order.work: command.order.scope for command in world.commands if isinstance(command, SubmitJobs)}
    assert "arena" in str(orders["a@1"])
    assert "hall" in str(orders["b@1"])
    assert world.run_out().run.outputs == {"venue": "hall"}


def venues(world: World) -> dict[str, str]:
    """The venue that each round of a task was submitted with."""
    orders = [command.order for command in world.commands if isinstance(command, SubmitJobs)]
    return {order.work: str(order.scope["params.venue"]) for order in orders}


@pytest.mark.finding("F-D8")
@pytest.mark.ledger("P1-13")
def test_a_restarted_task_has_the_data_it_began_with_and_a_redone_one_the_present() -> None:
    tasks = (
        Task("a", JobPattern(("echo", "${params.venue}"))),
        Task("b", JobPattern(("echo", "${params.venue}")), after=("a",)),
    )
    world = World(Flow("f", tasks, params={"venue": "arena", "seats": 9}), repeats=False)
    ann = Person(world)
    assert ann(VerbKind.SET_DATA, changes={"venue": "hall"})
    end(world, "a@1")
    assert venues(world) == {"a@1": "arena", "b@1": "hall"}
    assert ann(VerbKind.SET_DATA, changes={"seats": 10})
    assert ann(VerbKind.SET_DATA, changes={"venue": "park"})
    assert ann(VerbKind.RESTART, "b")
    world.run = FlowRun.from_plain(world.run.plan, world.run.as_plain())
    end(world, "b@1")
    assert venues(world)["b@2"] == "hall"
    assert ann(VerbKind.RESTART, "b")
    end(world, "b@2")
    assert venues(world)["b@3"] == "hall", "of a second restart it is still how it began"
    assert ann(VerbKind.REDO, "b")
    end(world, "b@3")
    assert venues(world)["b@4"] == "park"
    assert ann(VerbKind.RESTART, "b")
    end(world, "b@4")
    assert venues(world)["b@5"] == "park"
    assert ann(VerbKind.RESTART, "a")
    world.run_out()
    assert venues(world)["a@2"] == "arena"
    assert venues(world)["b@6"] == "park", "what comes after it is done with the present data"


def test_what_changes_of_the_data_replaced_is_kept_within_bounds() -> None:
    world = World(Flow("f", (Task("a", ECHO),), params={"venue": "arena"}), repeats=False)
    ann = Person(world)
    for number in range(150):
        assert ann(VerbKind.SET_DATA, changes={"venue": str(number)})
    assert (len(world.run.former), world.run.data_changes) == (MAX_FORMER, 150)
    assert world.run.data_at(150) == {"venue": "149"}
    assert world.run.data_at(149) == {"venue": "148"}
    assert world.run.data_at(50) == {"venue": "49"}
    assert world.run.data_at(0) == {"venue": "49"}, "the oldest that is known"
    for number in range(3):
        assert ann(VerbKind.SET_DATA, changes={"venue": f"{number}" * 40_000})
    assert len(world.run.former) < 3


def test_only_parameters_of_the_run_can_be_set_and_not_without_end() -> None:
    world = World(Flow("f", (Task("a", ECHO),), params={"venue": "arena"}), repeats=False)
    ann = Person(world)
    assert not ann(VerbKind.SET_DATA, changes={"other": 1})
    assert not ann(VerbKind.SET_DATA, changes={})
    assert not ann(VerbKind.SET_DATA, changes={"venue": "x" * 70_000})
    assert not ann(VerbKind.SET_DATA, "a", changes={"venue": "hall"})
    assert world.run.params == {"venue": "arena"}
    assert world.run_out().run.outcome is RunOutcome.COMPLETED
