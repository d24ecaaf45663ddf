"""What rules see of the run of a failed job, and what they see when its engine does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.system.clock import SystemClock
from forestay.domain.rules.condition import Erred
from forestay.domain.rules.context import UNFILLED, read_context
from forestay.ports.errors import NotFound, Transient
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.flows import run_context
from forestay.services.flows.run_context import RUN_FIELDS, RunStates


class FakeEngine:
    """Tells what it was given, or errs."""

    def __init__(self, states: Mapping[str, Mapping[str, Any] | Exception]) -> None:
        self.states, self.asked = states, list[str]()

    async def state(self, run: str) -> Mapping[str, Any]:
        self.asked.append(run)
        known = self.states.get(run)
        if known is None:
            await asyncio.sleep(3600)
        if isinstance(known, Exception):
            raise known
        return cast("Mapping[str, Any]", known)


def states_of(engine: FakeEngine) -> RunStates:
    return RunStates(cast("FlowEngine", engine), SystemClock())


async def test_a_run_is_asked_for_once_in_a_while() -> None:
    engine = FakeEngine({"a": {"params": {}}, "gone": NotFound("no")})
    states = states_of(engine)
    for _ in range(3):
        assert await states.ask(["a", "gone"]) == {"a": {"params": {}}}
    assert engine.asked.count("a") == 1


@pytest.mark.parametrize("silent", [True, False])
async def test_an_engine_that_does_not_answer_holds_no_failure_up(
    silent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_context, "PATIENCE", 0.05)
    engine = FakeEngine({} if silent else {"a": Transient("away")})
    states = states_of(engine)
    assert await states.ask(["a"]) == {}
    assert await states.ask(["a"]) == {}
    assert engine.asked == ["a"], "it was asked again at once"


async def test_of_many_runs_only_some_are_asked_for() -> None:
    engine = FakeEngine({str(n): {"params": {}} for n in range(100)})
    assert len(await states_of(engine).ask(map(str, range(100)))) == run_context.MOST_ASKED


@pytest.mark.finding("F-D7")
@pytest.mark.parametrize("field", RUN_FIELDS)
def test_a_condition_that_asks_for_what_could_not_be_found_out_errs(field: str) -> None:
    conditions = CelConditions()
    context, wrong = read_context({UNFILLED: list(RUN_FIELDS), "cause": "memory"})
    assert wrong == ()
    text = {"run.data": "size(run.data) == 0", "tasks": "size(tasks) == 0", "task.data": "size(task.data) == 0"}.get(
        field, f'{field} == ""' if field == "task.status" else f"{field} < 1.0"
    )
    assert conditions.over(read_context({})[0])(text) is True, "where the field is empty it is true"
    answer = conditions.over(context)(text)
    assert isinstance(answer, Erred)
    assert field in answer.message
    assert conditions.over(context)('cause == "memory"') is True
