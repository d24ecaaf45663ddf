"""The dispatcher: what may pass goes to a ladder, what will not is rolled back, and the house may say otherwise by cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.unit.domain.exceptions.incidents.test_house_policy import faulted, findings

from forestay.domain.exceptions.causes.cause import Cause, Finding, Retry
from forestay.domain.exceptions.incidents.dispatcher import (
    Dispatcher,
    Sent,
    Way,
    can_roll_back,
    check_dispatcher,
    read_way,
)
from forestay.domain.jobs.job_document import Tie


@pytest.mark.ledger("P2-03")
@pytest.mark.parametrize(
    ("cause", "retry", "sure", "way"),
    [
        (Cause.NETWORK, Retry.SAME, 0.9, Way.LADDER),
        (Cause.NODE, Retry.ELSEWHERE, 0.9, Way.LADDER),
        (Cause.CODE, Retry.NO, 0.9, Way.ROLLBACK),
        (Cause.MEMORY, Retry.CHANGED, 0.9, Way.ROLLBACK),
        (Cause.CODE, Retry.NO, 0.5, Way.LADDER),
        (Cause.UNKNOWN, Retry.NO, 0.0, Way.LADDER),
    ],
)
def test_recoverable_and_unrecoverable_faults_are_told_apart(cause: Cause, retry: Retry, sure: float, way: Way) -> None:
    assert Dispatcher({"*": Sent(Way.DISPATCH, "patient")}).send(Finding(cause, sure, retry)).way is way


@given(findings)
def test_every_fault_goes_some_way_and_by_itself_the_jobs_own(finding: Finding) -> None:
    assert Dispatcher().send(finding).way is Way.OWN
    told = Dispatcher({finding.cause.value: Sent(Way.LADDER, "short"), "*": Sent(Way.FAIL)}).send(finding)
    assert (told.way, told.ladder) == (Way.LADDER, "short")
    assert Dispatcher({"*": Sent(Way.DISPATCH)}).send(finding).way in (Way.LADDER, Way.ROLLBACK)


def test_ways_are_read_as_people_write_them() -> None:
    assert read_way("ladder patient") == Sent(Way.LADDER, "patient")
    assert read_way(" hold ") == Sent(Way.HOLD)
    assert read_way("dispatch") == Sent(Way.DISPATCH)
    assert read_way("hold patient") is read_way("climb") is read_way("") is None
    wrong = Dispatcher({"netwrok": Sent(Way.HOLD), "node": Sent(Way.LADDER, "tall")})
    assert dict(check_dispatcher(wrong, frozenset({"house"}))).keys() == {"netwrok", "node"}


def test_only_the_end_of_what_a_case_waits_for_is_the_cases() -> None:
    job = faulted()
    tie = Tie("case", "publish@1", "flow", -1, 0, 1)
    assert not can_roll_back(job)
    assert can_roll_back(replace(job, tie=tie))
    assert not can_roll_back(replace(job, tie=tie._replace(of=0)))
    assert not can_roll_back(replace(job, tie=tie._replace(work="publish@1!3.0")))
