"""The job-flow patterns of paper P0, section 3, and which of them a job uses: recognised from its document, never configured.

A job is in exactly one pattern of submission (section 3A), in staging if it has inputs (3B), and in execution once an attempt has begun (3C).
"""

from __future__ import annotations

from enum import StrEnum

from forestay.domain.jobs.job_document import JobDocument

FORGOTTEN = "forestay/forgotten"
"""The label of a job whose submitter neither waits for it nor polls its state."""
SUBMISSION = "forestay/submission"
"""The label by which an interface records how it submits the job if nothing else shows it: `synchronous` or `polling`."""


class JobFlowPattern(StrEnum):
    """How a job is submitted, awaited and run."""

    SYNCHRONOUS = "synchronous"
    """The submitting call returns when the job has ended."""
    POLLING = "polling"
    """The submitter has the job's id and asks for its state."""
    NOTIFICATION = "notification"
    """The submitter is notified of the end: a flow run, or the receiver of a registered callback."""
    FIRE_AND_FORGET = "fire-and-forget"
    """Nobody waits for the end; a failure is reported to the operators."""
    STAGING = "staging"
    """Files are staged before the job is executed."""
    EXECUTION = "execution"
    """An attempt has begun, so that its state and exit code describe a failure."""


def submission_pattern(document: JobDocument) -> JobFlowPattern:
    """How a job was submitted and is awaited."""
    # A registered callback takes precedence: it may be registered at any time, even for a job that its submitter did not wait for.
    if document.delivery is not None:
        return JobFlowPattern.NOTIFICATION
    if FORGOTTEN in document.labels or (document.flow_ref is not None and not document.flow_ref.of):
        return JobFlowPattern.FIRE_AND_FORGET
    for pattern in (JobFlowPattern.SYNCHRONOUS, JobFlowPattern.POLLING):
        if document.labels.get(SUBMISSION) == pattern:
            return pattern
    return JobFlowPattern.NOTIFICATION if document.flow_ref is not None else JobFlowPattern.POLLING


def patterns_in_use(document: JobDocument) -> tuple[JobFlowPattern, ...]:
    """All job-flow patterns of a job, that of its submission first."""
    staging = (JobFlowPattern.STAGING,) if document.stages else ()
    execution = (JobFlowPattern.EXECUTION,) if document.attempt else ()
    return (submission_pattern(document), *staging, *execution)
