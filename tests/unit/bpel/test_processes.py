"""Every construct, run to what is expected of it."""

from __future__ import annotations

import pytest
from tests.unit.bpel.processes import CASES, Case
from tests.unit.bpel.simulated import World, process_text, run_process

from forestay.flows.bpel.execution_context import ProcessStopped


def test_there_are_at_least_sixty() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_process_does_what_it_says(case: Case) -> None:
    text = process_text(case.body, variables=case.variables, before=case.before, attributes=case.attributes)
    ended, world, took = run_process(text, World(messages=list(case.messages)), case.first)
    assert (" ".join(world.seen), ended.how) == (case.seen, case.ended), (ended.fault, world.events)
    if case.took is not None:
        assert took == pytest.approx(case.took)


@pytest.mark.parametrize("case", CASES[::9], ids=lambda case: case.name)
def test_it_is_the_same_again(case: Case) -> None:
    text = process_text(case.body, variables=case.variables, before=case.before, attributes=case.attributes)
    runs = [run_process(text, World(messages=list(case.messages)), case.first)[1].events for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


def test_a_loop_that_waits_for_nothing_is_stopped() -> None:
    with pytest.raises(ProcessStopped, match="it loops"):
        run_process(process_text("<while><condition>true()</condition><empty/></while>"))
