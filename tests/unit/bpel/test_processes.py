"""Every construct, run to what is expected of it."""

from __future__ import annotations

import pytest
from tests.unit.bpel.processes import CASES, ProcessCase
from tests.unit.bpel.simulated import World, process_text, run_process

from forestay_bpel.interpreter.execution_context import ProcessStopped


def test_there_are_at_least_sixty() -> None:
    assert len({run.name for run in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("run", CASES, ids=lambda run: run.name)
def test_a_process_does_what_it_says(run: ProcessCase) -> None:
    text = process_text(run.body, variables=run.variables, before=run.before, attributes=run.attributes)
    ended, world, took = run_process(text, World(messages=list(run.messages)), run.first)
    assert (" ".join(world.seen), ended.how) == (run.seen, run.ended), (ended.fault, world.events)
    if run.took is not None:
        assert took == pytest.approx(run.took)


@pytest.mark.parametrize("run", CASES[::9], ids=lambda run: run.name)
def test_it_is_the_same_again(run: ProcessCase) -> None:
    text = process_text(run.body, variables=run.variables, before=run.before, attributes=run.attributes)
    runs = [run_process(text, World(messages=list(run.messages)), run.first)[1].events for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


def test_a_loop_that_waits_for_nothing_is_stopped() -> None:
    with pytest.raises(ProcessStopped, match="it loops"):
        run_process(process_text("<while><condition>true()</condition><empty/></while>"))
