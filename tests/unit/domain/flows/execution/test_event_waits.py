"""Tasks that wait for an event: what is taken, what a deadline does, and that every wait is closed."""

from __future__ import annotations

import pytest
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import AwaitEvent, CloseWait, RunOutcome
from forestay.domain.flows.definition.flow import Deadline, Flow, Task
from forestay.domain.flows.definition.flow_check import check_flow
from forestay.domain.flows.definition.flow_pattern import AwaitPattern, JobPattern, MergePattern
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain
from forestay.domain.flows.events import EventArrived, Verb, VerbKind
from forestay.domain.flows.execution.run_waits import WaitsOn, waits_for

WAIT = AwaitPattern("detector-ready", "run ${params.n}")
FLOW = Flow(
    "f",
    (
        Task("ready", WAIT),
        Task("read", JobPattern(("read", "${tasks.ready.outputs.file}"))),
        Task("told", MergePattern({"by": "${tasks.ready.result.by}", "file": "${tasks.ready.outputs.file}"})),
    ),
    params={"n": 7},
)


class Quiet(World):
    """Nobody sends an event but the test."""

    answering = False


def of(world: World, kind: type) -> list[object]:
    return [command for command in world.commands if isinstance(command, kind)]


def test_the_flow_is_right_and_survives_its_plain_form() -> None:
    late = Flow("f", (Task("a", AwaitPattern("e", default={"x": 1}), deadline=Deadline(60)),))
    for flow in (FLOW, late):
        assert check_flow(flow) == []
        assert flow_from_plain(flow_as_plain(flow)) == flow


def test_an_event_completes_its_task_and_later_tasks_use_its_data() -> None:
    world = Quiet(FLOW)
    assert of(world, AwaitEvent) == [AwaitEvent("ready@1", "detector-ready", "run 7")]
    (wait,) = waits_for(world.run)
    assert (wait.what, wait.detail) == (WaitsOn.EVENT, "event detector-ready, key run 7")
    world.send(EventArrived(world.now, "ready@1", "e1", "ada", {"file": "a.raw"}))
    world.send(EventArrived(world.now, "ready@1", "e2", "bob", {"file": "b.raw"}))
    world.run_out()
    assert world.finished is not None
    assert world.finished.outcome is RunOutcome.COMPLETED
    assert world.run.instances["told"].outputs == {"by": "ada", "file": "a.raw"}
    assert world.run.instances["ready"].reason == ""
    assert of(world, CloseWait) == [CloseWait("ready@1", "detector-ready", "run 7")]


def test_the_default_counts_at_the_deadline_and_without_one_the_task_fails() -> None:
    for default, outcome in (({"file": "none"}, RunOutcome.COMPLETED), (None, RunOutcome.FAILED)):
        task = Task("ready", AwaitPattern("e", default=default), deadline=Deadline(60))
        world = Quiet(Flow("f", (task,)))
        world.fire("ready@1")
        assert world.finished is not None
        assert world.finished.outcome is outcome
        assert of(world, CloseWait) == [CloseWait("ready@1", "e")]


@pytest.mark.parametrize(("verb", "task"), [(VerbKind.SKIP, "ready"), (VerbKind.REMOVE, ""), (VerbKind.FORCE_FAIL, "")])
def test_a_wait_that_is_ended_by_hand_is_closed(verb: VerbKind, task: str) -> None:
    world = Quiet(FLOW)
    world.send(Verb(world.now, "v", verb, instance=task, by="olga"))
    assert len(of(world, CloseWait)) == 1


def test_a_wait_that_is_redone_waits_anew_and_hears_nothing_for_its_old_round() -> None:
    world = Quiet(FLOW)
    world.send(Verb(world.now, "v", VerbKind.REDO, instance="ready", by="olga"))
    world.send(EventArrived(world.now, "ready@1", "late"))
    assert world.run.instances["ready"].state == "awaiting"
    assert [command.work for command in of(world, AwaitEvent)] == ["ready@1", "ready@2"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pattern", "where", "words"),
    [
        (AwaitPattern("two words"), "tasks.a.wait_for.event", "name the event"),
        (AwaitPattern("e", "${params.no}"), "tasks.a.wait_for.key", "no parameter 'no'"),
        (AwaitPattern("e", default={}), "tasks.a.wait_for.default", "give the task a deadline"),
    ],
)
def test_what_is_wrong_is_found_before(pattern: AwaitPattern, where: str, words: str) -> None:
    (problem,) = check_flow(Flow("f", (Task("a", pattern),)))
    assert problem.where == where
    assert words in problem.message
