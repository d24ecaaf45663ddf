"""The state of the largest run fits into one payload of 2 MB, and nothing from outside can make it grow past that."""

from __future__ import annotations

import json
from time import process_time

import pytest
from tests.speed import cpu_limit
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow import Compensation, Flow, Task
from forestay.domain.flows.definition.flow_check import MAX_PARAMS, MAX_TASKS, check_flow
from forestay.domain.flows.definition.flow_pattern import Dimension, JobPattern, RangeOf, SubflowPattern, WorkletPattern
from forestay.domain.flows.events import JobsEnded, RunEnded, ShardEnded, Verb, VerbKind, WorkletBound
from forestay.domain.flows.execution.flow_run import MAX_VERBS, FlowRun
from forestay.domain.flows.execution.verbs import MAX_WORD
from forestay.domain.flows.scatter.elements import elements
from forestay.domain.flows.scatter.shard_run import SHARD_JOBS

PAYLOAD = 2_000_000
UNDO = Compensation(JobPattern(("undo", "${tasks.t0.result.text}")))


def size(run: FlowRun) -> int:
    return len(json.dumps(run.as_plain()))


@pytest.mark.long
def test_a_run_of_as_many_tasks_as_there_may_be_with_the_largest_results() -> None:
    first = Task("t0", JobPattern(("x",), result="r.json"))
    rest = tuple(
        Task(f"t{n}", JobPattern(("x",), result="r.json"), after=("t0",), compensation=UNDO)
        for n in range(1, MAX_TASKS)
    )
    last = Flow("f", (first, *rest), {"large": "x" * (MAX_PARAMS - 100)})
    assert check_flow(last) == []
    world = World(last, repeats=False)
    limit = min(world.plan.result_limit, world.plan.undo_limit)
    world.results = lambda work: {"text": "y" * (limit - 60)}
    world.carried = False
    began = process_time()
    for n in range(MAX_TASKS):
        world.end_some(world.batches[f"t{n}@1", None])
    took = process_time() - began
    assert world.run.outcome is RunOutcome.COMPLETED
    assert world.run.pushed == MAX_TASKS - 1
    assert size(world.run) < PAYLOAD
    assert took < cpu_limit(60), "an event of the largest flow is a matter of milliseconds"


def test_two_million_jobs_of_which_half_failed_can_still_be_undone_from_the_state() -> None:
    scatter = (Dimension("x", RangeOf(0, 2_000_000)),)
    task = Task("s", JobPattern(("x",)), scatter=scatter, compensation=Compensation(JobPattern(("undo",))))
    world = World(Flow("f", (task,)), repeats=False)
    half = elements(range(0, SHARD_JOBS, 2))
    world.carried = False
    for shard in range(400):
        world.send(ShardEnded(1, "s@1", shard, SHARD_JOBS // 2, SHARD_JOBS // 2, done=half))
    assert world.run.stack[-1].fan_out is not None
    assert 400_000 < size(world.run) < PAYLOAD


def test_what_is_too_large_is_not_carried() -> None:
    inner = Flow("i", (Task("x", JobPattern(("x",))),))
    tasks = (
        Task("a", JobPattern(("x",), result="r")),
        Task("b", SubflowPattern("i")),
        Task("c", WorkletPattern("place")),
    )
    huge = {"x": "y" * 100_000}
    world = World(Flow("f", tasks, flows={"i": inner}), repeats=False)
    world.send(JobsEnded(2, "a@1", well=1, result=huge))
    world.send(RunEnded(2, "b@1", 0, well=True, outputs=huge))
    world.send(WorkletBound(2, "c@1", "f" * 64, huge))
    assert {instance.state.value for instance in world.run.instances.values()} == {"failed", "cancelled"}
    assert "its result is larger than" in world.run.instances["a"].reason
    assert size(world.run) < 5000


def test_verbs_do_not_pile_up() -> None:
    world = World(Flow("f", (Task("a", JobPattern(("x",))),)), repeats=False)
    for number in range(MAX_VERBS * 2):
        name = f"{number:0{MAX_WORD}}"
        world.send(Verb(10 + number, name, VerbKind.RAISE, "a", by="ann", reason="z" * 10_000))
    assert size(world.run) < 150_000
    world.send(Verb(5000, "x" * (MAX_WORD + 1), VerbKind.RAISE, "a"))
    assert not world.answers["x" * (MAX_WORD + 1)].accepted


def test_a_state_is_read_back_only_with_its_own_flow_and_by_a_release_that_knows_it() -> None:
    world = World(Flow("f", (Task("a", JobPattern(("x",))),)))
    plain = world.run.as_plain()
    other = World(Flow("f", (Task("a", JobPattern(("y",))),))).plan
    with pytest.raises(ValueError, match="pinned to flow"):
        FlowRun.from_plain(other, plain)
    with pytest.raises(ValueError, match="format 99"):
        FlowRun.from_plain(world.plan, {**plain, "format": 99})
