"""Whatever is sent to a run, it takes it in: nothing breaks, and the state can still be carried."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.execution.test_messages import message_of
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World

from forestay.domain.flows.definition.flow import Compensation, Flow, Task
from forestay.domain.flows.definition.flow_pattern import Dimension, JobPattern, RangeOf
from forestay.domain.flows.events import Event, ShardEnded
from forestay.domain.flows.execution.advance import advance
from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState, RunPhase
from forestay.domain.flows.execution.run_waits import waits_for
from forestay.domain.flows.scatter.fan_out import Piece

EVENTS: st.SearchStrategy[Event] = st.one_of([message_of(kind) for kind in get_args(Event)])


def aimed(event: Event, run: FlowRun, data: st.DataObject) -> Event:
    """The event, most of the time about something that is there."""
    works = [instance.work for instance in run.instances.values()] + [entry.undo for entry in run.stack] + ["run"]
    names = ["", *run.instances, *(f"!{entry.number}" for entry in run.stack)]
    changes: dict[str, Any] = {}
    if hasattr(event, "work"):
        changes["work"] = data.draw(st.sampled_from(works))
    if hasattr(event, "timer"):
        changes["timer"] = data.draw(st.sampled_from(works))
    if hasattr(event, "instance"):
        changes["instance"] = data.draw(st.sampled_from(names))
        changes["round"] = None
    if hasattr(event, "dimension"):
        changes["dimension"] = data.draw(st.sampled_from(["v0", "v1", "file", "x"]))
    return replace(event, **changes)


@settings(max_examples=examples(150))
@given(flows(), st.integers(0, 2**32), PARAMS, st.data())
def test_every_event_is_taken_in(flow: Flow, seed: int, params: dict[str, object], data: st.DataObject) -> None:
    world = World(flow, seed=seed, fate=fates(seed, 20), params=params, repeats=False)
    for _ in range(data.draw(st.integers(0, 10))):
        world.step()
    run = world.run
    for _ in range(10):
        event = aimed(data.draw(EVENTS), run, data)
        run, _ = advance(run, event)
        assert FlowRun.from_plain(world.plan, json.loads(json.dumps(run.as_plain()))) == run
        assert run.phase is RunPhase.FINISHED or waits_for(run)
        again, _ = advance(run, event)
        assert again == run, f"a repeat of {event} changed the run"


def test_a_shard_that_tells_of_more_ends_than_it_has_jobs_is_taken_to_have_ended_whole() -> None:
    task = Task(
        "s",
        JobPattern(("x",)),
        scatter=(Dimension("x", RangeOf(0, 600)),),
        compensation=Compensation(JobPattern(("u",))),
    )
    world = World(Flow("f", (task,)), repeats=False)
    world.send(ShardEnded(1, "s@1", 0, well=601, bad=-1))
    assert world.run.instances["s"].state is InstanceState.COMPLETED
    assert world.run.stack[-1].pieces == (Piece(0, 600),)
