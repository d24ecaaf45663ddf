"""Whatever the order of events, however often they are repeated, a run comes to the same end.

What is the same in every order, for the same flow, parameters and fates of its jobs:

- the outcome, always;
- the state, counts, result and outputs of every task, and which compensations were pushed, if the flow goes on after a failure. If it stops or cancels
  instead, what had begun by the time of the failure is up to the order, and only the outcome is promised.

The order of the compensation stack is the order in which tasks ended, so it differs; that it is undone from its top is always so. The world writes the state
down and reads it back between any two events, repeats events and checks that an unfinished run waits for something.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.flows.generated import PARAMS, fates, flows
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow import Flow, OnFailure, WhenFailed
from forestay.domain.flows.execution.flow_run import FlowRun

SEEDS = st.integers(0, 2**32)
BADNESS = st.sampled_from([0, 0, 10, 30, 100])
SMALL = 20_000


def end_state(run: FlowRun) -> object:
    instances = {
        instance.id: (
            instance.state,
            instance.round,
            instance.well,
            instance.bad,
            instance.count,
            instance.result,
            instance.outputs,
            instance.iteration,
        )
        for instance in run.instances.values()
    }
    return run.phase, run.outcome, run.outputs, run.pushed, instances


def run(flow: Flow, seed: int, salt: int, badness: int, params: dict[str, object]) -> World:
    return World(flow, seed=seed, fate=fates(salt, badness), params=params).run_out()


@settings(max_examples=examples(150))
@given(flows(on_failure=st.just(OnFailure.GO_ON)), SEEDS, SEEDS, SEEDS, BADNESS, PARAMS)
def test_every_order_gives_the_same_end(
    flow: Flow, seed: int, other_seed: int, salt: int, badness: int, params: dict[str, object]
) -> None:
    first, second = run(flow, seed, salt, badness, params), run(flow, other_seed, salt, badness, params)
    assert end_state(first.run) == end_state(second.run)


@settings(max_examples=examples(100))
@given(flows(), SEEDS, SEEDS, SEEDS, BADNESS, PARAMS)
def test_every_order_gives_the_same_outcome(
    flow: Flow, seed: int, other_seed: int, salt: int, badness: int, params: dict[str, object]
) -> None:
    first, second = run(flow, seed, salt, badness, params), run(flow, other_seed, salt, badness, params)
    assert first.run.outcome == second.run.outcome
    assert max(first.largest, second.largest) < SMALL


@settings(max_examples=examples(100))
@given(flows(policies=st.just(WhenFailed.FAIL)), SEEDS, SEEDS, BADNESS, PARAMS)
def test_a_failed_run_is_undone_from_the_top_and_nothing_is_dropped(
    flow: Flow, seed: int, salt: int, badness: int, params: dict[str, object]
) -> None:
    world = run(flow, seed, salt, badness, params)
    assert world.finished is not None
    numbers = [int(work.rpartition("!")[2].partition(".")[0]) for work in world.undone]
    if world.run.outcome is RunOutcome.FAILED:
        assert numbers == list(range(world.run.pushed, 0, -1))
        assert world.finished.left == 0
    else:
        assert numbers == []
        assert world.finished.left == world.run.pushed == len(world.run.stack)
