"""The dispatcher: what may pass goes to a retry policy, what will not is rolled back, and the default policy may say otherwise by cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests.unit.domain.exceptions.incidents.test_default_policy import faulted, findings

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.incidents.dispatcher import (
    Dispatcher,
    FailureRoute,
    RoutedFailure,
    can_roll_back,
    check_dispatcher,
    read_way,
)
from forestay.domain.jobs.job_document import FlowRef


@pytest.mark.ledger("P2-03")
@pytest.mark.parametrize(
    ("cause", "retry", "sure", "way"),
    [
        (Cause.NETWORK, RetryNeed.SAME, 0.9, FailureRoute.RETRY),
        (Cause.NODE, RetryNeed.ELSEWHERE, 0.9, FailureRoute.RETRY),
        (Cause.CODE, RetryNeed.NO, 0.9, FailureRoute.ROLLBACK),
        (Cause.MEMORY, RetryNeed.CHANGED, 0.9, FailureRoute.ROLLBACK),
        (Cause.CODE, RetryNeed.NO, 0.5, FailureRoute.RETRY),
        (Cause.UNKNOWN, RetryNeed.NO, 0.0, FailureRoute.RETRY),
    ],
)
def test_recoverable_and_unrecoverable_failures_are_told_apart(
    cause: Cause, retry: RetryNeed, sure: float, way: FailureRoute
) -> None:
    assert (
        Dispatcher({"*": RoutedFailure(FailureRoute.DISPATCH, "patient")}).send(CauseFinding(cause, sure, retry)).way
        is way
    )


@given(findings)
def test_every_failure_goes_some_way_and_by_itself_the_jobs_own(finding: CauseFinding) -> None:
    assert Dispatcher().send(finding).way is FailureRoute.OWN
    failure = Dispatcher(
        {finding.cause.value: RoutedFailure(FailureRoute.RETRY, "short"), "*": RoutedFailure(FailureRoute.FAIL)}
    ).send(finding)
    assert (failure.way, failure.retry_policy) == (FailureRoute.RETRY, "short")
    assert Dispatcher({"*": RoutedFailure(FailureRoute.DISPATCH)}).send(finding).way in (
        FailureRoute.RETRY,
        FailureRoute.ROLLBACK,
    )


def test_ways_are_read_as_people_write_them() -> None:
    assert read_way("retry patient") == RoutedFailure(FailureRoute.RETRY, "patient")
    assert read_way(" hold ") == RoutedFailure(FailureRoute.HOLD)
    assert read_way("dispatch") == RoutedFailure(FailureRoute.DISPATCH)
    assert read_way("hold patient") is read_way("climb") is read_way("") is None
    wrong = Dispatcher({"netwrok": RoutedFailure(FailureRoute.HOLD), "node": RoutedFailure(FailureRoute.RETRY, "tall")})
    assert dict(check_dispatcher(wrong, frozenset({"default"}))).keys() == {"netwrok", "node"}


def test_only_the_end_of_what_a_run_waits_for_is_the_runs() -> None:
    job = faulted()
    flow_ref = FlowRef("run", "publish@1", "flow", -1, 0, 1)
    assert not can_roll_back(job)
    assert can_roll_back(replace(job, flow_ref=flow_ref))
    assert not can_roll_back(replace(job, flow_ref=flow_ref._replace(of=0)))
    assert not can_roll_back(replace(job, flow_ref=flow_ref._replace(work="publish@1!3.0")))
