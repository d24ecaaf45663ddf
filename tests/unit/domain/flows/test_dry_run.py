"""What a run would do, as far as a flow and its parameters say so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.domain.flows.definition.expression import Path, inside
from forestay.domain.flows.definition.flow import Flow, Task
from forestay.domain.flows.definition.flow_pattern import Branch, ChoicePattern, Dimension, JobPattern, RangeOf
from forestay.domain.flows.definition.flow_plan import plan_flow
from forestay.domain.flows.dry_run import holds_before, in_order, known_inputs
from forestay.domain.flows.execution.rounds import scatter_sizes

JOB = JobPattern(("x",))


def known(path: Path) -> object:
    return inside({"params": {"n": 3, "mode": "quick"}}, path)


def test_tasks_come_after_those_that_they_wait_for_and_inner_ones_after_their_own() -> None:
    inner = ChoicePattern((Branch("b", (Task("late", JOB, after=("early",)), Task("early", JOB)), "params.n > 1"),))
    flow = Flow(
        "f", (Task("last", JOB, after=("choose",)), Task("choose", inner, after=("first",)), Task("first", JOB))
    )
    assert [task.task.name for task in in_order(plan_flow(flow))] == ["first", "choose", "early", "late", "last"]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [("", True), ("params.n == 3", True), ("params.n == 4", False), ("tasks.a.result > 1 or params.n == 3", None)],
)
def test_a_condition_holds_does_not_or_is_open(condition: str, holds: bool | None) -> None:
    assert holds_before(condition, known) is holds


def test_inputs_that_are_known_before_the_run() -> None:
    job = JobPattern(
        ("x",), inputs={"a": "/d/${params.mode}", "b": "${sample}/${index}", "c": "${tasks.t.outputs.o}", "${params.q}": "/d"}
    )  # fmt: skip
    ready, later = known_inputs(job, known, frozenset({"sample", "index"}))
    assert (list(ready), later) == (["a", "b"], ("c", "${params.q}"))
    assert known_inputs(job, known, frozenset())[1] == ("b", "c", "${params.q}")


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
@settings(max_examples=examples(100))
def test_the_size_of_a_range(first: int, end: int, step: int) -> None:
    task = Task("t", JOB, scatter=(Dimension("n", RangeOf(first, end, step)),))
    assert scatter_sizes(task, known, {}) == (len(range(first, end, step)),)


def test_a_range_that_no_machine_word_counts() -> None:
    task = Task("t", JOB, scatter=(Dimension("n", RangeOf(-(2**63), 2**63 - 1)),))
    assert scatter_sizes(task, known, {}) == (2**64 - 1,)
