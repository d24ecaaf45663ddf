"""A playbook does its steps once and in order, whatever is told to it how often, and leaves nothing suspended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.playbooks.made_up import good_playbooks
from tests.unit.domain.playbooks.test_playbook_check import (
    CONTINUE,
    CONTINUE_RUN,
    REMOVE_RUN,
    SUSPEND,
    SUSPEND_RUN,
    playbook,
)

from forestay.domain.playbooks.action import (
    ActionKind,
    ActionTarget,
    CompensateAction,
    Hold,
    Notify,
    Rollback,
    Steer,
    Worklet,
    target_of,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, WhenRefused, aimed
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.playbooks.playbook_run import (
    Command,
    DoStep,
    Event,
    FinishPlaybook,
    PlaybookRun,
    PlaybookRunState,
    StartWorklets,
    StepDone,
    StepRefused,
    StepStage,
    StepState,
    Stopped,
    TakeBack,
    WorkletEnded,
    advance,
    ask_again,
    start_playbook,
    worklet_run,
)

TWO = CompensateAction((Worklet("one"), Worklet("two")))
BACK = CompensateAction((Worklet("one", take={"venue": "venue"}),))


def begin(made: Playbook) -> tuple[PlaybookRun, Command | None]:
    run, (command,) = start_playbook("i1", 1, made)
    return run, command


def tell(run: PlaybookRun, event: Event) -> tuple[PlaybookRun, Command | None]:
    run, commands = advance(run, event)
    assert len(commands) <= 1
    return run, commands[0] if commands else None


@pytest.mark.ledger("P1-16")
def test_the_playbook_of_figure_3_suspends_compensates_and_continues() -> None:
    run, command = begin(playbook(SUSPEND_RUN, TWO, CONTINUE_RUN))
    assert command == DoStep(0, "i1:1:0")
    run, command = tell(run, StepDone(0))
    runs = (worklet_run("i1", 1, 1, 0), worklet_run("i1", 1, 1, 1))
    assert command == StartWorklets(1, "i1:1:1", runs)
    run, command = tell(run, WorkletEnded(1, 1, well=True))
    assert command is None
    run, command = tell(run, WorkletEnded(1, 0, well=True))
    assert command == DoStep(2, "i1:1:2", release="i1:1:0")
    run, command = tell(run, StepDone(2))
    assert command == FinishPlaybook(PlaybookRunState.COMPLETE)
    assert [end.state for end in run.ends] == [StepState.DONE] * 3


@pytest.mark.ledger("P1-17")
def test_what_worklets_give_back_comes_before_the_next_step() -> None:
    run, command = begin(playbook(BACK, Notify("done")))
    assert isinstance(command, StartWorklets)
    run, command = tell(run, WorkletEnded(0, 0, well=True))
    assert command == TakeBack(0, "i1:1:0", (worklet_run("i1", 1, 0, 0),))
    run, command = tell(run, StepDone(0))
    assert command is None
    run, command = tell(run, StepDone(0, stage=StepStage.TAKE_BACK))
    assert command == DoStep(1, "i1:1:1")


def test_a_worklet_that_fails_stops_the_playbook_and_leaves_the_run_to_a_person() -> None:
    run, _ = begin(playbook(SUSPEND_RUN, TWO, CONTINUE_RUN))
    run, _ = tell(run, StepDone(0))
    run, _ = tell(run, WorkletEnded(1, 0, well=False, reason="no venue"))
    run, command = tell(run, WorkletEnded(1, 1, well=True))
    assert command == FinishPlaybook(
        PlaybookRunState.FAILED, "step 1, compensate: worklet 0: no venue", (ActionTarget.RUN,)
    )
    assert run.state is PlaybookRunState.FAILED


def test_a_step_may_be_refused_and_the_playbook_goes_on() -> None:
    made = Playbook("recover", (PlaybookStep(TWO, WhenRefused.GO_ON), PlaybookStep(Notify("tried"))))
    run, _ = begin(made)
    run, command = tell(run, StepRefused(0, "there is no such flow"))
    assert command == DoStep(1, "i1:1:1")
    run, command = tell(run, StepRefused(1, "nobody there"))
    assert command == FinishPlaybook(PlaybookRunState.COMPLETE)
    assert [end.detail for end in run.ends] == ["there is no such flow", "nobody there"]


@pytest.mark.ledger("P1-12")
def test_what_the_playbook_did_not_suspend_is_not_continued() -> None:
    made = Playbook(
        "recover", (PlaybookStep(SUSPEND, WhenRefused.GO_ON), PlaybookStep(Notify("hm")), PlaybookStep(CONTINUE))
    )
    run, _ = begin(made)
    run, _ = tell(run, StepRefused(0, "16 holders already suspended the task"))
    run, command = tell(run, StepDone(1))
    assert command == FinishPlaybook(PlaybookRunState.COMPLETE)
    assert run.ends[2].state is StepState.REFUSED


def test_a_hold_leaves_it_to_a_person() -> None:
    run, _ = begin(playbook(SUSPEND_RUN, Hold(ActionTarget.RUN)))
    run, _ = tell(run, StepDone(0))
    run, command = tell(run, StepDone(1))
    assert command == FinishPlaybook(PlaybookRunState.HELD, held=(ActionTarget.RUN,))


def test_what_is_removed_is_held_by_nobody() -> None:
    run, _ = begin(playbook(SUSPEND_RUN, REMOVE_RUN))
    run, _ = tell(run, StepDone(0))
    run, command = tell(run, StepDone(1))
    assert command == FinishPlaybook(PlaybookRunState.COMPLETE)


def test_a_stopped_playbook_says_what_it_may_have_suspended() -> None:
    run, _ = begin(playbook(SUSPEND_RUN, CONTINUE_RUN))
    run, command = tell(run, Stopped("ada"))
    assert command == FinishPlaybook(PlaybookRunState.STOPPED, "stopped by ada", (ActionTarget.RUN,))
    assert tell(run, StepDone(0)) == (run, None)


def any_event(data: st.DataObject, made: Playbook) -> Event:
    step = data.draw(st.integers(-1, len(made.steps)))
    stage = data.draw(st.sampled_from(list(StepStage)))
    kinds = st.one_of(
        st.builds(StepDone, st.just(step), st.just(""), st.just(stage)),
        st.builds(StepRefused, st.just(step), st.just("gone"), st.just(stage)),
        st.builds(WorkletEnded, st.just(step), st.integers(-1, 2), st.booleans()),
    )
    return data.draw(kinds)


def answer(data: st.DataObject, command: Command) -> list[Event]:
    """What the outside says to a command: refused now and then, worklets in any order, anything twice."""
    if isinstance(command, FinishPlaybook):
        return []
    refused = data.draw(st.integers(0, 9)) == 0
    if isinstance(command, StartWorklets):
        if refused:
            return [StepRefused(command.step, "there is no such flow")]
        order = data.draw(st.permutations(range(len(command.runs))))
        well = data.draw(st.integers(0, 9)) > 0
        return [WorkletEnded(command.step, place, well or place > 0) for place in order]
    stage = StepStage.TAKE_BACK if isinstance(command, TakeBack) else StepStage.ACT
    return [StepRefused(command.step, "gone", stage) if refused else StepDone(command.step, stage=stage)]


@given(st.data())
def test_each_step_is_asked_for_once_and_in_order_whatever_comes_twice(data: st.DataObject) -> None:
    # As deciders do: a playbook is aimed before it runs, and its check looks at what it is aimed at.
    made = aimed(data.draw(good_playbooks()), at_job=False)
    assert check_playbook(made) == []
    run, commands = start_playbook("i1", 1, made)
    asked: list[Command] = [*commands]
    waiting: list[Event] = [event for command in commands for event in answer(data, command)]
    past: list[Event] = []
    while waiting:
        kind = data.draw(st.integers(0, 3))
        if kind == 0 and past:
            event = data.draw(st.sampled_from(past))
        else:
            event = waiting.pop(0)
            past.append(event)
        if data.draw(st.booleans()):
            run = PlaybookRun.from_plain(run.as_plain())
        assert run.state is not PlaybookRunState.RUNNING or ask_again(run)
        run, commands = advance(run, event)
        asked += commands
        waiting += [event for command in commands for event in answer(data, command)]
    assert run.state is not PlaybookRunState.RUNNING
    steps = [(command.step, type(command)) for command in asked if not isinstance(command, FinishPlaybook)]
    assert steps == sorted(set(steps), key=lambda step: (step[0], step[1] is TakeBack))
    assert [command for command in asked if isinstance(command, FinishPlaybook)] == [asked[-1]]
    refused = {place for place, end in enumerate(run.ends) if end.state is StepState.REFUSED}
    never = {
        place
        for place, step in enumerate(made.steps)
        if step.action is ActionKind.CONTINUE and place in refused and (place, DoStep) not in steps
    }
    assert {step for step, _ in steps} | never == set(range(len(run.ends)))
    if run.state is PlaybookRunState.COMPLETE:
        assert len(run.ends) == len(made.steps)
        # Nothing stays suspended. Only what could not be ended may, and then that step is said to be refused.
        assert all(_could_not_end(made, refused, target) for target in run.held)
    last = asked[-1]
    assert isinstance(last, FinishPlaybook)
    assert last.held == tuple(run.held)


def _could_not_end(made: Playbook, refused: set[int], target: ActionTarget) -> bool:
    return any(
        place in refused
        and step.action in (ActionKind.REMOVE, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL, ActionKind.ROLLBACK)
        for place, step in enumerate(made.steps)
    ) and any(step.action is ActionKind.SUSPEND and target_of(step.do) is target for step in made.steps)


def test_what_undoes_the_run_holds_the_subject_of_the_exception_no_longer() -> None:
    """Found by a search: the job or task that an exception is about is part of its run."""
    suspend = Steer(ActionKind.SUSPEND, ActionTarget.SUBJECT)
    run, _ = start_playbook("i1", 1, Playbook("undo", (PlaybookStep(suspend), PlaybookStep(Rollback()))))
    run, _ = advance(run, StepDone(0, stage=StepStage.ACT))
    assert run.held.keys() == {ActionTarget.SUBJECT}
    run, _ = advance(run, StepDone(1, stage=StepStage.ACT))
    assert (run.state, run.held) == (PlaybookRunState.COMPLETE, {})


@given(st.data())
def test_any_events_at_all_leave_a_run_that_makes_sense(data: st.DataObject) -> None:
    made = data.draw(good_playbooks())
    run, commands = start_playbook("i1", 1, made)
    asked = list(commands)
    for _ in range(data.draw(st.integers(0, 30))):
        run, commands = advance(run, any_event(data, made))
        asked += commands
        assert len(run.ends) == min(run.at, len(made.steps))
    steps = [entry.step for entry in asked if isinstance(entry, DoStep | StartWorklets)]
    assert steps == sorted(set(steps))
