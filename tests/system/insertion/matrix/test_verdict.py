"""What counts as harm in a cell of the insertion matrix."""

from __future__ import annotations

from dataclasses import replace

from tests.system.insertion.matrix.verdict import HARM, NOT_RECOVERED, SEEN, UNSEEN, Met, harms, verdict

WELL = Met(True, "COMPLETED", starts={"1": (10.0,)}, ends={"1": 1})
FAILED = Met(False, "FAILED", ("FAILED",), 20.0, {"1": (10.0,)})
RECOVERED = replace(WELL, starts={"1": (10.0, 22.0)})


def test_a_recovery_that_nobody_notices_is_unseen() -> None:
    assert verdict(FAILED, RECOVERED) == UNSEEN
    assert verdict(WELL, WELL) == UNSEEN


def test_a_failure_that_was_shown_before_the_good_end_is_seen() -> None:
    assert verdict(FAILED, replace(RECOVERED, alarms=("NODE_FAIL",), alarm_at=23.0)) == SEEN


def test_a_failure_as_without_us_is_not_recovered() -> None:
    assert verdict(FAILED, FAILED) == NOT_RECOVERED


def test_a_failure_that_is_ours_alone_is_harm() -> None:
    assert verdict(WELL, FAILED) == HARM


def test_a_success_that_is_shown_of_work_that_never_completed_is_harm() -> None:
    assert harms(FAILED, replace(FAILED, good=True, alarms=())) == ["part 1 never completed, and its user saw success"]


def test_a_job_that_runs_again_after_its_user_saw_it_fail_is_harm() -> None:
    assert verdict(FAILED, replace(RECOVERED, alarms=("FAILED",), alarm_at=20.0)) == HARM
    assert verdict(FAILED, replace(FAILED, starts={"1": (10.0, 15.0)})) == HARM


def test_a_job_that_slurm_itself_runs_again_is_none_of_ours() -> None:
    again = replace(RECOVERED, alarms=("NODE_FAIL",), alarm_at=20.0)
    assert verdict(again, again) == SEEN


def test_a_part_that_had_ended_well_and_runs_again_is_harm() -> None:
    ours = replace(RECOVERED, ends={"1": 1, "2": 2}, starts={"1": (10.0, 22.0), "2": (10.0, 22.0)})
    assert harms(replace(FAILED, ends={"2": 1}), ours) == ["part 2 had completed and ran again"]
