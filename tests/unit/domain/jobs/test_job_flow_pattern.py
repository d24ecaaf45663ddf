"""Which job-flow patterns of paper P0, section 3, a job is recognised to be in."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.client.executor import running
from forestay.domain.jobs.job_document import Delivery, FlowRef, JobDocument
from forestay.domain.jobs.job_flow_pattern import FORGOTTEN, SUBMISSION, JobFlowPattern, patterns_in_use
from forestay.domain.jobs.resources import Resources

AWAITED = FlowRef("run", "align@1", "flow", -1, 0, 1)


def job(**changes: Any) -> JobDocument:
    return JobDocument("job", "default", "spec", "align", "ada", 0, 0, Resources(), **changes)


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({}, JobFlowPattern.POLLING),
        ({"labels": {SUBMISSION: "synchronous"}}, JobFlowPattern.SYNCHRONOUS),
        ({"labels": {SUBMISSION: "anything"}}, JobFlowPattern.POLLING),
        ({"labels": {FORGOTTEN: "true"}}, JobFlowPattern.FIRE_AND_FORGET),
        ({"delivery": Delivery("https://example.org/told")}, JobFlowPattern.NOTIFICATION),
        (
            {"delivery": Delivery("https://example.org/told"), "labels": {FORGOTTEN: "true"}},
            JobFlowPattern.NOTIFICATION,
        ),
        ({"flow_ref": AWAITED}, JobFlowPattern.NOTIFICATION),
        ({"flow_ref": AWAITED, "labels": {SUBMISSION: "synchronous"}}, JobFlowPattern.SYNCHRONOUS),
        ({"flow_ref": AWAITED, "labels": {SUBMISSION: "polling"}}, JobFlowPattern.POLLING),
        ({"flow_ref": AWAITED._replace(of=0)}, JobFlowPattern.FIRE_AND_FORGET),
    ],
)
def test_a_job_is_in_exactly_one_pattern_of_submission(changes: dict[str, Any], pattern: JobFlowPattern) -> None:
    assert patterns_in_use(job(**changes)) == (pattern,)


def test_staging_and_execution_are_added_as_they_apply() -> None:
    assert patterns_in_use(job(stages=True)) == (JobFlowPattern.POLLING, JobFlowPattern.STAGING)
    assert patterns_in_use(job(stages=True, attempt=1)) == (
        JobFlowPattern.POLLING,
        JobFlowPattern.STAGING,
        JobFlowPattern.EXECUTION,
    )


def test_the_client_and_the_domain_mean_the_same_labels() -> None:
    assert (
        FORGOTTEN,
        SUBMISSION,
        JobFlowPattern.SYNCHRONOUS.value,
    ) == (running.FORGOTTEN, running.SUBMISSION, running.SYNCHRONOUS)
