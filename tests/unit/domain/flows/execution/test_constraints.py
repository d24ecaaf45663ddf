"""A case that waits for the answer to a constraint: nothing begins or ends before, and nothing is begun twice."""

from __future__ import annotations

import pytest

from forestay.domain.flows.commands import CheckCase, Command, FinishCase, Report, SubmitJobs
from forestay.domain.flows.definition.flow import Flow, Task
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.events import CaseChecked, Event, JobsEnded, RoundHeld, Verb, VerbKind
from forestay.domain.flows.execution.advance import advance, start_run
from forestay.domain.flows.execution.constraints import EXCEPTION, holder_of
from forestay.domain.flows.execution.flow_run import EndCheck, FlowRun, ItemState
from forestay.domain.flows.execution.messages import as_plain, event_from_plain

FLOW = Flow(
    "concert",
    (Task("show", JobPattern(("show", "${params.venue}"))), Task("settle", JobPattern(("settle",)), after=("show",))),
    params={"venue": "arena"},
    outputs={"venue": "${params.venue}"},
)
PLAN = planned(FLOW)
HOLDER = holder_of("i1")


class Case:
    """A case, and all that it has said."""

    def __init__(self, **started: object) -> None:
        self.said: list[Command] = []
        self.at = 1000
        self.run, commands = start_run(PLAN, case="c", at=self.at, **started)  # type: ignore[arg-type]
        self.said += commands

    def take(self, event: Event) -> tuple[Command, ...]:
        """Take an event in, carried as it would be, and from a state that was carried too; the same event again does nothing more."""
        event = event_from_plain(as_plain(event))
        before = FlowRun.from_plain(PLAN, self.run.as_plain())
        self.run, commands = advance(before, event)
        if not isinstance(event, Verb):
            again, _ = advance(self.run, event)
            assert again == self.run
        self.said += commands
        return commands

    def verb(self, kind: VerbKind, item: str = "", **more: object) -> None:
        self.at += 1
        self.take(Verb(self.at, f"v{self.at}", kind, item, by="ann", **more))  # type: ignore[arg-type]

    def submitted(self) -> list[tuple[str, object, bool]]:
        orders = [one.order for one in self.said if isinstance(one, SubmitJobs)]
        return [(one.work, one.scope.get("params.venue"), one.checked) for one in orders]

    def reports(self) -> list[str]:
        return [one.detail for one in self.said if isinstance(one, Report) and one.kind == EXCEPTION]

    def show(self) -> ItemState:
        return self.run.items["show"].state

    @property
    def finished(self) -> bool:
        return any(isinstance(one, FinishCase) for one in self.said)


@pytest.mark.ledger("P1-02")
def test_an_item_that_may_not_begin_waits_and_begins_anew_with_the_data_as_they_are_then() -> None:
    case = Case()
    case.take(RoundHeld(2, "show@1", "i1", again=True))
    assert (case.show(), case.run.items["show"].holders) == (ItemState.WAITING, (HOLDER,))
    case.verb(VerbKind.SET_DATA, changes={"venue": "club"})
    assert case.submitted() == [("show@1", "arena", False)]
    case.verb(VerbKind.CONTINUE, "show", holder=HOLDER)
    assert case.submitted() == [("show@1", "arena", False), ("show@2", "club", True)], "and is not looked at again"
    assert case.reports() == ["i1"]


def test_what_is_said_of_an_item_while_it_waits_is_done() -> None:
    case = Case()
    case.verb(VerbKind.FORCE_COMPLETE, "show")
    case.take(RoundHeld(2, "show@1", "i1", again=True))
    assert case.show() is ItemState.FORCED_COMPLETE
    assert [work for work, _, _ in case.submitted()] == ["show@1", "settle@1"]
    other = Case()
    other.take(RoundHeld(2, "show@1", "i1", again=True))
    other.verb(VerbKind.REMOVE, "show")
    assert other.show() is ItemState.CANCELLED


@pytest.mark.ledger("P1-03")
def test_an_item_that_may_not_end_ends_when_its_holder_is_gone() -> None:
    case = Case()
    case.take(RoundHeld(2, "show@1", "i1"))
    case.take(JobsEnded(3, "show@1", well=1, exit_code=0))
    assert case.show() is ItemState.RUNNING
    assert len(case.submitted()) == 1
    case.verb(VerbKind.CONTINUE, "show", holder=HOLDER)
    assert case.show() is ItemState.COMPLETED
    assert len(case.submitted()) == 2


@pytest.mark.ledger("P1-01")
def test_a_case_that_may_not_begin_has_its_answer_carried_out_and_begins_after() -> None:
    case = Case(held=("i1",))
    assert (case.run.holders, case.submitted(), case.reports()) == ((HOLDER,), [], ["i1"])
    case.verb(VerbKind.CONTINUE, holder=HOLDER)
    assert [work for work, _, _ in case.submitted()] == ["show@1"]


@pytest.mark.ledger("P1-04")
def test_a_case_is_looked_at_before_it_ends_and_again_after_a_redo() -> None:
    case = Case(check=EndCheck.WANTED)
    for work in ("show@1", "settle@1"):
        case.take(JobsEnded(2, work, well=1, exit_code=0))
    (asked,) = [one for one in case.said if isinstance(one, CheckCase)]
    assert asked.outputs == {"venue": "arena"}
    assert not case.finished
    case.take(CaseChecked(3, "i1"))
    assert (case.run.holders, case.finished, case.reports()) == ((HOLDER,), False, ["i1"])
    case.verb(VerbKind.REDO, "settle")
    case.verb(VerbKind.CONTINUE, holder=HOLDER)
    assert not case.finished
    case.take(JobsEnded(4, "settle@2", well=1, exit_code=0))
    assert len([one for one in case.said if isinstance(one, CheckCase)]) == 2
    case.take(CaseChecked(5))
    assert case.finished


def test_a_case_of_which_nobody_looks_at_the_end_ends_as_ever() -> None:
    case = Case()
    for work in ("show@1", "settle@1"):
        case.take(JobsEnded(2, work, well=1, exit_code=0))
    assert case.finished
    assert "check" not in case.run.as_plain()
