"""Writes to a failed job: the default answer, or a delay of its failure. They apply only to the failure for which they were decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.incidents.default_policy import DefaultAction, DefaultAnswer, carried_out
from forestay.domain.exceptions.incidents.incident import Decision
from forestay.domain.exceptions.incidents.retry_policy import retries_told
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.services.exceptions.exception_event import PendingException
from forestay.services.shared.checked_writer import ProposedWrite


def parked(job: JobDocument, until: int, now: int) -> ProposedWrite:
    """A write that makes the failure not due before `until`."""

    def decide(document: JobDocument) -> JobDocument | TransitionRefused:
        if not _is_same_failure(job, document):
            return TransitionRefused("the job has changed")
        return document if document.not_before == until else document.having(not_before=until, changed=now)

    return ProposedWrite(job.id, decide, lambda document: not _is_same_failure(job, document))


def default_answer_write(pending: PendingException, job: JobDocument, now: int) -> ProposedWrite:
    """The write of the default policy's decision to the job."""
    answer = _recorded_answer(pending.decision)
    evidence = pending.incident.context.get("evidence")
    told: Mapping[str, object] = evidence if isinstance(evidence, Mapping) else {}

    def decide(document: JobDocument) -> JobDocument | TransitionRefused:
        if not _is_same_failure(job, document):
            return TransitionRefused("the job has changed")
        retries = retries_told(told, document.labels)
        return carried_out(
            document, answer, now=now, by=pending.decision.by, cause=pending.status.cause, retries=retries
        )

    return ProposedWrite(job.id, decide, lambda document: not _is_same_failure(job, document))


def _recorded_answer(decision: Decision) -> DefaultAnswer:
    detail: Mapping[str, Any] = decision.detail
    avoid = tuple(detail.get("avoid", ()))
    return DefaultAnswer(
        DefaultAction(decision.verdict), detail["words"], detail["wait"], charged=detail["charged"], avoid=avoid
    )


def _is_same_failure(before: JobDocument, now: JobDocument) -> bool:
    """Whether it is the same failure, and still unanswered."""
    return now.state is State.FAULTED and now.attempt == before.attempt and now.last == before.last
