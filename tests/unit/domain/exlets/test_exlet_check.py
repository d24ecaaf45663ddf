"""What is wrong with an exlet is said, all of it, with the step it is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.exlets.made_up import exlets

from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, EXECUTING, ExceptionType
from forestay.domain.exlets.exlet import Exlet, PlaybookStep, actions_of, aimed, is_one_write
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.exlets.exlet_plain import exlet_as_plain, exlet_from_plain, version_of
from forestay.domain.exlets.primitive import (
    STEERING,
    Action,
    ActionTarget,
    Amount,
    AvoidHost,
    ClimbLadder,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Primitive,
    Repoll,
    Reregister,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    Rollback,
    Select,
    Steer,
    Worklet,
)

SUSPEND_CASE = Steer(Action.SUSPEND, ActionTarget.CASE)
CONTINUE_CASE = Steer(Action.CONTINUE, ActionTarget.CASE)
REMOVE_CASE = Steer(Action.REMOVE, ActionTarget.CASE)
SUSPEND = Steer(Action.SUSPEND)
CONTINUE = Steer(Action.CONTINUE)
RESTART = Steer(Action.RESTART)
MEND = CompensateAction((Worklet("w1"),))


def exlet(*primitives: Primitive) -> Exlet:
    return Exlet("mend", tuple(PlaybookStep(one) for one in primitives))


def said(made: Exlet, kind: ExceptionType | None = None, **known: object) -> list[str]:
    return [f"{one.where}: {one.message}" for one in check_exlet(made, kind, **known)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (exlet(SUSPEND_CASE, MEND, CONTINUE_CASE), ExceptionType.ITEM_PRE),
        (exlet(SUSPEND, MEND, CONTINUE), ExceptionType.ITEM_PRE),
        (exlet(SUSPEND_CASE, MEND, REMOVE_CASE), ExceptionType.ITEM_PRE),
        (exlet(Steer(Action.SUSPEND, ActionTarget.ALL_CASES), MEND, Steer(Action.CONTINUE, ActionTarget.ALL_CASES)), ExceptionType.CASE_EXTERNAL),
        (exlet(Steer(Action.REMOVE, ActionTarget.ANCESTORS)), ExceptionType.CASE_PRE),
        (exlet(RESTART), ExceptionType.ABORT),
        (exlet(SUSPEND, CONTINUE, RESTART), ExceptionType.ITEM_EXTERNAL),
        (exlet(Steer(Action.FORCE_COMPLETE), Notify("forced")), ExceptionType.TIMEOUT),
        (exlet(MEND), ExceptionType.CASE_POST),
        (exlet(SUSPEND_CASE, MEND, CONTINUE_CASE), ExceptionType.ITEM_POST),
        (exlet(SUSPEND_CASE, Notify("what now?"), Hold(ActionTarget.CASE)), ExceptionType.CASE_PRE),
        (exlet(AvoidHost(), Resubmit()), ExceptionType.ABORT),
        (exlet(Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(2.0, at_most=1 << 36)})), ExceptionType.ABORT),
        (exlet(ClimbLadder()), ExceptionType.RESOURCE_UNAVAILABLE),
        (exlet(Resubmit(), Repoll()), ExceptionType.ABORT),
        (exlet(Resubmit(), Reregister()), ExceptionType.ABORT),
        (exlet(MEND, Rollback()), ExceptionType.ITEM_PRE),
        (exlet(Select(Worklet("w1"))), ExceptionType.SELECTION),
    ],
)  # fmt: skip
def test_good_exlets_are_good(made: Exlet, kind: ExceptionType) -> None:
    assert said(made, kind, worklets={"w1"}) == []


@pytest.mark.ledger("P1-10", "P1-11", "P1-12", "P1-19")
@pytest.mark.parametrize("action", [Action.REMOVE, Action.SUSPEND, Action.CONTINUE])
@pytest.mark.parametrize("target", list(ActionTarget))
def test_three_actions_have_every_target(action: Action, target: ActionTarget) -> None:
    before = (Steer(Action.SUSPEND, target),) if action is Action.CONTINUE else ()
    after = (Steer(Action.CONTINUE, target),) if action is Action.SUSPEND else ()
    assert said(exlet(*before, Steer(action, target), *after)) == []


@pytest.mark.parametrize(
    ("made", "kind", "words"),
    [
        (exlet(Select(Worklet("w1")), MEND), None, ["steps[0]: select cannot be combined with other steps"]),
        (exlet(Steer(Action.RESTART, ActionTarget.CASE)), None, ["steps[0].target: restart applies to a task, not to the case"]),
        (exlet(Steer(Action.FORCE_COMPLETE, ActionTarget.ALL_CASES)), None, ["steps[0].target: force-complete applies to a task, not to all cases"]),
        (exlet(CompensateAction((Worklet("w1"), Worklet("w9")))), None, ["steps[0].worklets[1]: there is no worklet 'w9'"]),
        (exlet(Select(Worklet("w9"))), None, ["steps[0].worklets[0]: there is no worklet 'w9'"]),
        (exlet(CompensateAction(())), None, ["steps[0].worklets: no worklet is given"]),
        (exlet(MEND, MEND), None, ["steps[1]: step 0 already does this"]),
        (exlet(REMOVE_CASE, SUSPEND), None, [
            "steps[1]: nothing can be done to the item after step 0",
            "steps[1]: the item stays suspended at the end; continue or remove it, or end with 'hold'",
        ]),
        (exlet(Steer(Action.FORCE_FAIL), RESTART), None, ["steps[1]: nothing can be done to the item after step 0"]),
        (exlet(Rollback(), REMOVE_CASE), None, ["steps[1]: nothing can be done to the case after step 0"]),
        (exlet(CONTINUE), None, ["steps[0]: the item was not suspended by an earlier step; continue has no other effect"]),
        (exlet(SUSPEND_CASE, CONTINUE), None, [
            "steps[1]: the item was not suspended by an earlier step; continue has no other effect",
            "steps[0]: the case stays suspended at the end; continue or remove it, or end with 'hold'",
        ]),
        (exlet(SUSPEND, RESTART, CONTINUE), None, ["steps[1]: it is suspended since step 0; continue it first"]),
        (exlet(SUSPEND_CASE, RESTART, CONTINUE_CASE), None, ["steps[1]: it is suspended since step 0; continue it first"]),
        (exlet(SUSPEND_CASE), None, ["steps[0]: the case stays suspended at the end; continue or remove it, or end with 'hold'"]),
        (exlet(Hold(), MEND), None, ["steps[0]: hold must be the last step: a person decides what follows"]),
        (exlet(RESTART), ExceptionType.ITEM_PRE, ["steps[0]: restart applies to an executing task (abort, constraint-violation, item-external); item-pre is not one of them"]),
        (exlet(Steer(Action.REMOVE)), ExceptionType.CASE_PRE, ["steps[0]: case-pre concerns a whole run; remove applies to a task or its job"]),
        (exlet(Resubmit()), ExceptionType.CASE_EXTERNAL, ["steps[0]: case-external concerns a whole run; resubmit applies to a task or its job"]),
        (exlet(REMOVE_CASE), ExceptionType.CASE_POST, ["steps[0]: case-post: the run is complete; only compensate is possible, not remove"]),
        (exlet(Steer(Action.REMOVE)), ExceptionType.ITEM_POST, ["steps[0]: item-post: the task is complete; only compensate is possible, or suspend, continue and remove of more than the task"]),
        (exlet(MEND), ExceptionType.SELECTION, ["steps[0]: compensate is not a selection; for a late-bound task a playbook is one 'select'"]),
        (exlet(Resubmit(), ClimbLadder()), None, ["steps[1]: step 0 already submits the work"]),
        (exlet(Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(2.0)})), None, ["steps[0].needs.memory: a factor needs 'at_most' as a limit"]),
        (exlet(CompensateAction((Worklet("w1", {"a": "${weather}"}),))), None, ["steps[0].worklets[0].give.a: ${weather} starts with none of case, incident, params, tasks"]),
        (exlet(REMOVE_CASE, CompensateAction((Worklet("w1", take={"a": "b"}),))), None, ["steps[1]: the run has ended by then; nothing can be returned to it"]),
        (exlet(CompensateAction((Worklet("w1", take={"a": "b"}), Worklet("w1", take={"a": "c"})))), None, ["steps[0].worklets[1].take.a: worklet 0 also returns it; only one may"]),
        (exlet(Repoll()), None, ["steps[0]: repoll needs a resubmitted job; resubmit must come first"]),
        (exlet(Restage(), Reregister()), None, ["steps[1]: after restage comes data staging or failed or job submission, not job status notification"]),
        (Exlet("", ()), None, [
            "name: a name has up to 64 letters, digits, '_', '-' and '.', and begins with a letter or '_'",
            "steps: it has no steps; at least one is required",
        ]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(made: Exlet, kind: ExceptionType | None, words: list[str]) -> None:
    assert said(made, kind, worklets={"w1"}) == words


def test_everything_is_said_at_once() -> None:
    made = exlet(CONTINUE, SUSPEND_CASE, CompensateAction(()), Steer(Action.RESTART, ActionTarget.CASE), Notify(""))
    assert len(said(made, ExceptionType.CASE_POST)) >= 6


@pytest.mark.parametrize("kind", sorted(EXCEPTIONS))
def test_restart_is_for_items_that_execute(kind: ExceptionType) -> None:
    assert (said(exlet(RESTART), kind) == []) == (kind in EXECUTING)


@given(exlets, st.none() | st.sampled_from(list(ExceptionType)), st.booleans())
def test_the_check_is_total(made: Exlet, kind: ExceptionType | None, known: bool) -> None:
    for finding in check_exlet(made, kind, worklets={"change-venue"} if known else None, ladders=set()):
        assert finding.message
        if finding.path and finding.path[0] == "steps" and len(finding.path) > 1:
            place = finding.path[1]
            assert isinstance(place, int)
            assert place < len(made.steps)


@given(exlets)
def test_an_exlet_is_read_back_as_it_was(made: Exlet) -> None:
    again = exlet_from_plain(exlet_as_plain(made))
    assert again == made
    assert version_of(again) == version_of(made)
    assert len(actions_of(made.steps)) == len(made.steps)


def test_which_exlets_are_one_write() -> None:
    force = exlet(Steer(Action.FORCE_COMPLETE, ActionTarget.JOB))
    assert all(
        is_one_write(one, of_case=True)
        for one in (exlet(Resubmit()), exlet(Restage()), exlet(ClimbLadder()), exlet(AvoidHost()), force)
    )
    item = exlet(Steer(Action.FORCE_FAIL))
    assert is_one_write(exlet(Restage(Restaging.OTHER_REPLICA))), "what is looked up for it is written nowhere else"
    assert is_one_write(item)
    assert not is_one_write(item, of_case=True)
    several = (
        exlet(AvoidHost(), Resubmit()),
        exlet(MEND),
        exlet(SUSPEND_CASE, CONTINUE_CASE),
        exlet(REMOVE_CASE),
        exlet(Rollback()),
    )
    assert not any(is_one_write(one) for one in several)


@pytest.mark.finding("F-D1")
@pytest.mark.parametrize("action", sorted({*STEERING, Action.HOLD}))
def test_a_step_without_a_target_is_about_the_job_of_the_exception_or_its_item(action: Action) -> None:
    read = exlet_from_plain({"name": "e", "steps": [{"action": action.value}]})
    assert exlet_as_plain(read)["steps"] == [{"action": action.value}], "it is stored as it was written"
    for at_job, target in ((True, "job"), (False, "item")):
        assert exlet_as_plain(aimed(read, at_job=at_job))["steps"] == [{"action": action.value, "target": target}]
    explicit = exlet_from_plain({"name": "e", "steps": [{"action": action.value, "target": "item"}]})
    assert aimed(explicit, at_job=True) == explicit


@pytest.mark.finding("F-D1")
def test_what_was_suspended_without_a_target_is_the_job_for_a_job_that_failed() -> None:
    steps = exlet(Steer(Action.SUSPEND), Resubmit(), Hold())
    assert any("the job is suspended" in one.message for one in check_exlet(steps, ExceptionType.ABORT))
    assert not check_exlet(exlet(Steer(Action.SUSPEND), Steer(Action.CONTINUE), Resubmit()), ExceptionType.ABORT)
