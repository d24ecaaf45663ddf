"""What is wrong with a playbook is said, all of it, with the step it is about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.playbooks.made_up import playbooks

from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, EXECUTING, ExceptionType
from forestay.domain.playbooks.action import (
    STEERING,
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidHost,
    CompensateAction,
    Hold,
    NeedChange,
    Notify,
    Repoll,
    Reregister,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Rollback,
    Select,
    Steer,
    Worklet,
)
from forestay.domain.playbooks.playbook import (
    Playbook,
    PlaybookStep,
    actions_of,
    aimed,
    is_one_write,
    playbook_as_plain,
    playbook_from_plain,
    version_of,
)
from forestay.domain.playbooks.playbook_check import check_playbook

SUSPEND_RUN = Steer(ActionKind.SUSPEND, ActionTarget.RUN)
CONTINUE_RUN = Steer(ActionKind.CONTINUE, ActionTarget.RUN)
REMOVE_RUN = Steer(ActionKind.REMOVE, ActionTarget.RUN)
SUSPEND = Steer(ActionKind.SUSPEND)
CONTINUE = Steer(ActionKind.CONTINUE)
RESTART = Steer(ActionKind.RESTART)
RECOVER = CompensateAction((Worklet("w1"),))


def playbook(*actions: Action) -> Playbook:
    return Playbook("recover", tuple(PlaybookStep(action) for action in actions))


def said(made: Playbook, kind: ExceptionType | None = None, **known: object) -> list[str]:
    return [f"{problem.where}: {problem.message}" for problem in check_playbook(made, kind, **known)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (playbook(SUSPEND_RUN, RECOVER, CONTINUE_RUN), ExceptionType.TASK_PRE),
        (playbook(SUSPEND, RECOVER, CONTINUE), ExceptionType.TASK_PRE),
        (playbook(SUSPEND_RUN, RECOVER, REMOVE_RUN), ExceptionType.TASK_PRE),
        (playbook(Steer(ActionKind.SUSPEND, ActionTarget.ALL_RUNS), RECOVER, Steer(ActionKind.CONTINUE, ActionTarget.ALL_RUNS)), ExceptionType.RUN_EXTERNAL),
        (playbook(Steer(ActionKind.REMOVE, ActionTarget.ANCESTORS)), ExceptionType.RUN_PRE),
        (playbook(RESTART), ExceptionType.ABORT),
        (playbook(SUSPEND, CONTINUE, RESTART), ExceptionType.TASK_EXTERNAL),
        (playbook(Steer(ActionKind.FORCE_COMPLETE), Notify("forced")), ExceptionType.TIMEOUT),
        (playbook(RECOVER), ExceptionType.RUN_POST),
        (playbook(SUSPEND_RUN, RECOVER, CONTINUE_RUN), ExceptionType.TASK_POST),
        (playbook(SUSPEND_RUN, Notify("what now?"), Hold(ActionTarget.RUN)), ExceptionType.RUN_PRE),
        (playbook(AvoidHost(), Resubmit()), ExceptionType.ABORT),
        (playbook(Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(2.0, at_most=1 << 36)})), ExceptionType.ABORT),
        (playbook(RetryByPolicy()), ExceptionType.RESOURCE_UNAVAILABLE),
        (playbook(Resubmit(), Repoll()), ExceptionType.ABORT),
        (playbook(Resubmit(), Reregister()), ExceptionType.ABORT),
        (playbook(RECOVER, Rollback()), ExceptionType.TASK_PRE),
        (playbook(Select(Worklet("w1"))), ExceptionType.SELECTION),
    ],
)  # fmt: skip
def test_good_playbooks_are_good(made: Playbook, kind: ExceptionType) -> None:
    assert said(made, kind, worklets={"w1"}) == []


@pytest.mark.ledger("P1-10", "P1-11", "P1-12", "P1-19")
@pytest.mark.parametrize("action", [ActionKind.REMOVE, ActionKind.SUSPEND, ActionKind.CONTINUE])
@pytest.mark.parametrize("target", list(ActionTarget))
def test_three_actions_have_every_target(action: ActionKind, target: ActionTarget) -> None:
    before = (Steer(ActionKind.SUSPEND, target),) if action is ActionKind.CONTINUE else ()
    after = (Steer(ActionKind.CONTINUE, target),) if action is ActionKind.SUSPEND else ()
    assert said(playbook(*before, Steer(action, target), *after)) == []


@pytest.mark.parametrize(
    ("made", "kind", "words"),
    [
        (playbook(Select(Worklet("w1")), RECOVER), None, ["steps[0]: select cannot be combined with other steps"]),
        (playbook(Steer(ActionKind.RESTART, ActionTarget.RUN)), None, ["steps[0].target: restart applies to a task, not to the run"]),
        (playbook(Steer(ActionKind.FORCE_COMPLETE, ActionTarget.ALL_RUNS)), None, ["steps[0].target: force-complete applies to a task, not to all runs"]),
        (playbook(CompensateAction((Worklet("w1"), Worklet("w9")))), None, ["steps[0].worklets[1]: there is no worklet 'w9'"]),
        (playbook(Select(Worklet("w9"))), None, ["steps[0].worklets[0]: there is no worklet 'w9'"]),
        (playbook(CompensateAction(())), None, ["steps[0].worklets: no worklet is given"]),
        (playbook(RECOVER, RECOVER), None, ["steps[1]: step 0 already does this"]),
        (playbook(REMOVE_RUN, SUSPEND), None, [
            "steps[1]: nothing can be done to the task after step 0",
            "steps[1]: the task stays suspended at the end; continue or remove it, or end with 'hold'",
        ]),
        (playbook(Steer(ActionKind.FORCE_FAIL), RESTART), None, ["steps[1]: nothing can be done to the task after step 0"]),
        (playbook(Rollback(), REMOVE_RUN), None, ["steps[1]: nothing can be done to the run after step 0"]),
        (playbook(CONTINUE), None, ["steps[0]: the task was not suspended by an earlier step; continue has no other effect"]),
        (playbook(SUSPEND_RUN, CONTINUE), None, [
            "steps[1]: the task was not suspended by an earlier step; continue has no other effect",
            "steps[0]: the run stays suspended at the end; continue or remove it, or end with 'hold'",
        ]),
        (playbook(SUSPEND, RESTART, CONTINUE), None, ["steps[1]: it is suspended since step 0; continue it first"]),
        (playbook(SUSPEND_RUN, RESTART, CONTINUE_RUN), None, ["steps[1]: it is suspended since step 0; continue it first"]),
        (playbook(SUSPEND_RUN), None, ["steps[0]: the run stays suspended at the end; continue or remove it, or end with 'hold'"]),
        (playbook(Hold(), RECOVER), None, ["steps[0]: hold must be the last step: a person decides what follows"]),
        (playbook(RESTART), ExceptionType.TASK_PRE, ["steps[0]: restart applies to an executing task (abort, constraint-violation, task-external); task-pre is not one of them"]),
        (playbook(Steer(ActionKind.REMOVE)), ExceptionType.RUN_PRE, ["steps[0]: run-pre concerns a whole run; remove applies to a task or its job"]),
        (playbook(Resubmit()), ExceptionType.RUN_EXTERNAL, ["steps[0]: run-external concerns a whole run; resubmit applies to a task or its job"]),
        (playbook(REMOVE_RUN), ExceptionType.RUN_POST, ["steps[0]: run-post: the run is complete; only compensate is possible, not remove"]),
        (playbook(Steer(ActionKind.REMOVE)), ExceptionType.TASK_POST, ["steps[0]: task-post: the task is complete; only compensate is possible, or suspend, continue and remove of more than the task"]),
        (playbook(RECOVER), ExceptionType.SELECTION, ["steps[0]: compensate is not a selection; for a late-bound task a playbook is one 'select'"]),
        (playbook(Resubmit(), RetryByPolicy()), None, ["steps[1]: step 0 already submits the work"]),
        (playbook(Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(2.0)})), None, ["steps[0].needs.memory: a factor needs 'at_most' as a limit"]),
        (playbook(CompensateAction((Worklet("w1", {"a": "${weather}"}),))), None, ["steps[0].worklets[0].give.a: ${weather} starts with none of incident, params, run, tasks"]),
        (playbook(REMOVE_RUN, CompensateAction((Worklet("w1", take={"a": "b"}),))), None, ["steps[1]: the run has ended by then; nothing can be returned to it"]),
        (playbook(CompensateAction((Worklet("w1", take={"a": "b"}), Worklet("w1", take={"a": "c"})))), None, ["steps[0].worklets[1].take.a: worklet 0 also returns it; only one may"]),
        (playbook(Repoll()), None, ["steps[0]: repoll needs a resubmitted job; resubmit must come first"]),
        (playbook(Restage(), Reregister()), None, ["steps[1]: after restage comes data staging or failed or job submission, not job status notification"]),
        (Playbook("", ()), None, [
            "name: a name has up to 64 letters, digits, '_', '-' and '.', and begins with a letter or '_'",
            "steps: it has no steps; at least one is required",
        ]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(made: Playbook, kind: ExceptionType | None, words: list[str]) -> None:
    assert said(made, kind, worklets={"w1"}) == words


def test_everything_is_said_at_once() -> None:
    made = playbook(
        CONTINUE, SUSPEND_RUN, CompensateAction(()), Steer(ActionKind.RESTART, ActionTarget.RUN), Notify("")
    )
    assert len(said(made, ExceptionType.RUN_POST)) >= 6


@pytest.mark.parametrize("kind", sorted(EXCEPTIONS))
def test_restart_is_for_instances_that_execute(kind: ExceptionType) -> None:
    assert (said(playbook(RESTART), kind) == []) == (kind in EXECUTING)


@given(playbooks, st.none() | st.sampled_from(list(ExceptionType)), st.booleans())
def test_the_check_is_total(made: Playbook, kind: ExceptionType | None, known: bool) -> None:
    for finding in check_playbook(made, kind, worklets={"change-venue"} if known else None, retry_policies=set()):
        assert finding.message
        if finding.path and finding.path[0] == "steps" and len(finding.path) > 1:
            place = finding.path[1]
            assert isinstance(place, int)
            assert place < len(made.steps)


@given(playbooks)
def test_a_playbook_is_read_back_as_it_was(made: Playbook) -> None:
    again = playbook_from_plain(playbook_as_plain(made))
    assert again == made
    assert version_of(again) == version_of(made)
    assert len(actions_of(made.steps)) == len(made.steps)


def test_which_playbooks_are_one_write() -> None:
    force = playbook(Steer(ActionKind.FORCE_COMPLETE, ActionTarget.JOB))
    assert all(
        is_one_write(playbook, of_run=True)
        for playbook in (
            playbook(Resubmit()),
            playbook(Restage()),
            playbook(RetryByPolicy()),
            playbook(AvoidHost()),
            force,
        )
    )
    instance = playbook(Steer(ActionKind.FORCE_FAIL))
    assert is_one_write(playbook(Restage(Restaging.OTHER_REPLICA))), "what is looked up for it is written nowhere else"
    assert is_one_write(instance)
    assert not is_one_write(instance, of_run=True)
    several = (
        playbook(AvoidHost(), Resubmit()),
        playbook(RECOVER),
        playbook(SUSPEND_RUN, CONTINUE_RUN),
        playbook(REMOVE_RUN),
        playbook(Rollback()),
    )
    assert not any(is_one_write(playbook) for playbook in several)


@pytest.mark.finding("F-D1")
@pytest.mark.parametrize("action", sorted({*STEERING, ActionKind.HOLD}))
def test_a_step_without_a_target_is_about_the_job_of_the_exception_or_its_instance(action: ActionKind) -> None:
    read = playbook_from_plain({"name": "e", "steps": [{"action": action.value}]})
    assert playbook_as_plain(read)["steps"] == [{"action": action.value}], "it is stored as it was written"
    for at_job, target in ((True, "job"), (False, "task")):
        assert playbook_as_plain(aimed(read, at_job=at_job))["steps"] == [{"action": action.value, "target": target}]
    explicit = playbook_from_plain({"name": "e", "steps": [{"action": action.value, "target": "task"}]})
    assert aimed(explicit, at_job=True) == explicit


@pytest.mark.finding("F-D1")
def test_what_was_suspended_without_a_target_is_the_job_for_a_job_that_failed() -> None:
    steps = playbook(Steer(ActionKind.SUSPEND), Resubmit(), Hold())
    assert any("the job is suspended" in problem.message for problem in check_playbook(steps, ExceptionType.ABORT))
    assert not check_playbook(
        playbook(Steer(ActionKind.SUSPEND), Steer(ActionKind.CONTINUE), Resubmit()), ExceptionType.ABORT
    )
