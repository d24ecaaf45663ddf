"""A run that waits for the answer to a constraint: nothing begins or ends before, and nothing is begun twice."""

from __future__ import annotations

import pytest

from forestay.domain.flows.commands import CheckRun, Command, FinishRun, Report, SubmitJobs
from forestay.domain.flows.definition.flow import Deadline, Flow, Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.events import Event, JobsEnded, RoundHeld, RunChecked, TimerFired, Verb, VerbKind
from forestay.domain.flows.execution.advance import advance, start_run
from forestay.domain.flows.execution.constraints import EXCEPTION, holder_of
from forestay.domain.flows.execution.flow_run import EndCheck, FlowRun, InstanceState
from forestay.domain.flows.execution.messages import as_plain, event_from_plain

FLOW = Flow(
    "concert",
    (Task("show", JobPattern(("show", "${params.venue}"))), Task("settle", JobPattern(("settle",)), after=("show",))),
    params={"venue": "arena"},
    outputs={"venue": "${params.venue}"},
)
PLAN = planned(FLOW)
HOLDER = holder_of("i1")


class RunDriver:
    """A run, and all that it has said."""

    def __init__(self, **started: object) -> None:
        self.said: list[Command] = []
        self.at = 1000
        self.run, commands = start_run(PLAN, run="c", at=self.at, **started)  # type: ignore[arg-type]
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

    def verb(self, kind: VerbKind, instance: str = "", **more: object) -> None:
        self.at += 1
        self.take(Verb(self.at, f"v{self.at}", kind, instance, by="ann", **more))  # type: ignore[arg-type]

    def submitted(self) -> list[tuple[str, object, bool]]:
        orders = [command.order for command in self.said if isinstance(command, SubmitJobs)]
        return [(order.work, order.scope.get("params.venue"), order.checked) for order in orders]

    def reports(self) -> list[str]:
        return [command.detail for command in self.said if isinstance(command, Report) and command.kind == EXCEPTION]

    def show(self) -> InstanceState:
        return self.run.instances["show"].state

    @property
    def finished(self) -> bool:
        return any(isinstance(command, FinishRun) for command in self.said)


@pytest.mark.ledger("P1-02")
def test_an_instance_that_may_not_begin_waits_and_begins_anew_with_the_data_as_they_are_then() -> None:
    driver = RunDriver()
    driver.take(RoundHeld(2, "show@1", "i1", again=True))
    assert (driver.show(), driver.run.instances["show"].holders) == (InstanceState.WAITING, (HOLDER,))
    driver.verb(VerbKind.SET_DATA, changes={"venue": "club"})
    assert driver.submitted() == [("show@1", "arena", False)]
    driver.verb(VerbKind.CONTINUE, "show", holder=HOLDER)
    assert driver.submitted() == [("show@1", "arena", False), ("show@2", "club", True)], "and is not looked at again"
    assert driver.reports() == ["i1"]


def test_what_is_said_of_an_instance_while_it_waits_is_done() -> None:
    driver = RunDriver()
    driver.verb(VerbKind.FORCE_COMPLETE, "show")
    driver.take(RoundHeld(2, "show@1", "i1", again=True))
    assert driver.show() is InstanceState.FORCED_COMPLETE
    assert [work for work, _, _ in driver.submitted()] == ["show@1", "settle@1"]
    other = RunDriver()
    other.take(RoundHeld(2, "show@1", "i1", again=True))
    other.verb(VerbKind.REMOVE, "show")
    assert other.show() is InstanceState.CANCELLED


@pytest.mark.ledger("P1-03")
def test_an_instance_that_may_not_end_ends_when_its_holder_is_gone() -> None:
    driver = RunDriver()
    driver.take(RoundHeld(2, "show@1", "i1"))
    driver.take(JobsEnded(3, "show@1", well=1, exit_code=0))
    assert driver.show() is InstanceState.RUNNING
    assert len(driver.submitted()) == 1
    driver.verb(VerbKind.CONTINUE, "show", holder=HOLDER)
    assert driver.show() is InstanceState.COMPLETED
    assert len(driver.submitted()) == 2


@pytest.mark.ledger("P1-01")
def test_a_run_that_may_not_begin_has_its_answer_carried_out_and_begins_after() -> None:
    driver = RunDriver(held=("i1",))
    assert (driver.run.holders, driver.submitted(), driver.reports()) == ((HOLDER,), [], ["i1"])
    driver.verb(VerbKind.CONTINUE, holder=HOLDER)
    assert [work for work, _, _ in driver.submitted()] == ["show@1"]


@pytest.mark.ledger("P1-04")
def test_a_run_is_looked_at_before_it_ends_and_again_after_a_redo() -> None:
    driver = RunDriver(check=EndCheck.WANTED)
    for work in ("show@1", "settle@1"):
        driver.take(JobsEnded(2, work, well=1, exit_code=0))
    (asked,) = [command for command in driver.said if isinstance(command, CheckRun)]
    assert asked.outputs == {"venue": "arena"}
    assert not driver.finished
    driver.take(RunChecked(3, "i1"))
    assert (driver.run.holders, driver.finished, driver.reports()) == ((HOLDER,), False, ["i1"])
    driver.verb(VerbKind.REDO, "settle")
    driver.verb(VerbKind.CONTINUE, holder=HOLDER)
    assert not driver.finished
    driver.take(JobsEnded(4, "settle@2", well=1, exit_code=0))
    assert len([command for command in driver.said if isinstance(command, CheckRun)]) == 2
    driver.take(RunChecked(5))
    assert driver.finished


def test_a_run_of_which_nobody_looks_at_the_end_ends_as_ever() -> None:
    driver = RunDriver()
    for work in ("show@1", "settle@1"):
        driver.take(JobsEnded(2, work, well=1, exit_code=0))
    assert driver.finished
    assert "check" not in driver.run.as_plain()


def test_a_task_that_failed_at_its_deadline_stays_failed_when_it_hears_that_it_was_held() -> None:
    """Found by generated flows: the first word of it was obeyed as a failure, its repeat began the task anew."""
    task = Task("show", JobPattern(("show",)), deadline=Deadline(60), when_failed=WhenFailed.HOLD)
    run, _ = start_run(planned(Flow("late", (task,))), run="c", at=1000)
    run, _ = advance(run, TimerFired(2000, "show@1"))
    for _ in range(2):
        run, _ = advance(run, RoundHeld(2001, "show@1", "i1", again=True))
        assert run.instances["show"].state is InstanceState.FAULTED
        assert run.instances["show"].holders == (HOLDER,)
