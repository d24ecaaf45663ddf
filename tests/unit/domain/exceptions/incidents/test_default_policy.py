"""What the default policy does about a failure without a rule: the job's own policy, which infrastructure never pays with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.pilot_finding import pilot_finding
from forestay.domain.exceptions.incidents.default_policy import (
    FREE_TRIES,
    NEVER,
    DefaultAction,
    carried_out,
    default_answer,
)
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE
from forestay.domain.jobs.claim import MAX_RELEASES, by_retry_policy, claimable
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, WhenExhausted

NOW = 1_700_000_000_000


def faulted(*, failures: int = 1, releases: int = 0, policy: RetryPolicy | None = None) -> JobDocument:
    last = AttemptResult(Token(0, failures), "claim", AttemptOutcome.FAILURE, exit_code=1)
    return JobDocument(
        "job", "lab", "spec", "one", "ann", NOW, NOW, Resources(), state=State.FAULTED, attempt=failures, failures=failures,
        releases=releases, last=last, retry=policy or RetryPolicy(),
    )  # fmt: skip


findings = st.builds(CauseFinding, st.sampled_from(Cause), st.floats(0, 1), st.sampled_from(RetryNeed))
policies = st.builds(RetryPolicy, st.integers(1, 5), st.integers(0, 100), st.sampled_from(WhenExhausted))
documents = st.builds(
    lambda failures, releases, policy: faulted(failures=failures, releases=releases, policy=policy),
    st.integers(1, 6),
    st.integers(0, MAX_RELEASES),
    policies,
)


@given(documents, findings)
def test_a_failure_never_disappears(document: JobDocument, finding: CauseFinding) -> None:
    answer = default_answer(document, finding)
    after = carried_out(document, answer, now=NOW, by="default policy")
    match answer.course:
        case DefaultAction.RETRY:
            assert after.state is State.AVAILABLE
            assert claimable(after, NOW + 1000 * answer.wait)
        case DefaultAction.HOLD:
            assert (after.state, after.not_before) == (State.FAULTED, NEVER)
        case DefaultAction.FAIL:
            assert after.state is State.FAILED


@given(documents, findings)
def test_infrastructure_pays_for_itself_and_not_for_ever(document: JobDocument, finding: CauseFinding) -> None:
    answer = default_answer(document, finding)
    ours = finding.cause in INFRASTRUCTURE and finding.confidence >= SURE
    assert answer.charged or ours, "the user's attempts are spared for nothing else"
    if not answer.charged:
        after = carried_out(document, answer, now=NOW, by="default policy")
        assert (after.failures, after.releases) == (document.failures - 1, document.releases + 1)
        assert after.releases <= len(FREE_TRIES)


@given(documents)
def test_without_a_cause_it_is_the_jobs_own_policy(document: JobDocument) -> None:
    if document.releases >= MAX_RELEASES:
        return
    finding = CauseFinding(Cause.UNKNOWN, 0.2, RetryNeed.NO)
    after = carried_out(document, default_answer(document, finding), now=NOW, by="default policy")
    plain = by_retry_policy(document, NOW)
    assert (after.state, after.failures) == (plain.state, plain.failures)
    if after.state is State.AVAILABLE:
        assert after.not_before == plain.not_before


@pytest.mark.finding("F-B9")
@pytest.mark.parametrize("error", ["EACCES", "EROFS", "ENOSPC", "EDQUOT", "HTTP 403"])
def test_outputs_that_cannot_be_written_cost_nobody_an_attempt(error: str) -> None:
    """The job ended well. As with infrastructure, its own attempts count only after the free ones."""
    document = faulted(policy=RetryPolicy(1))
    last = AttemptResult(
        Token(0, 1), "claim", AttemptOutcome.FAILURE, reason="output-failed", error=error, stage="staging-out"
    )
    finding = pilot_finding(last)
    assert finding is not None
    courses = []
    for _ in range(4):
        document = document.having(last=last)
        answer = default_answer(document, finding, (0, 30, 90))
        courses.append((answer.course, answer.wait))
        document = carried_out(document, answer, now=NOW, by="default policy")
        assert document.failures == (1 if answer.course is DefaultAction.FAIL else 0)
        document = document.having(state=State.FAULTED, failures=1, attempt=document.attempt + 1)
    assert courses == [*((DefaultAction.RETRY, wait) for wait in (0, 30, 90)), (DefaultAction.FAIL, 0)]


def test_outputs_that_were_refused_for_a_reason_are_the_jobs_own() -> None:
    document = faulted(policy=RetryPolicy(1))
    last = AttemptResult(Token(0, 1), "claim", AttemptOutcome.FAILURE, reason="output-failed", error="bad-manifest")
    finding = pilot_finding(last)
    assert finding is not None
    assert default_answer(document.having(last=last), finding).course is DefaultAction.FAIL


@pytest.mark.ledger("P2-07")
@pytest.mark.parametrize("cause", sorted(INFRASTRUCTURE))
def test_after_the_free_tries_the_jobs_own_attempts_count(cause: str) -> None:
    finding = CauseFinding(Cause(cause), 0.95, RetryNeed.ELSEWHERE)
    document = faulted(policy=RetryPolicy(2, 7))
    waits = []
    for _ in range(6):
        answer = default_answer(document, finding, (0, 30, 90))
        waits.append((answer.course, answer.wait, answer.charged))
        if answer.course is not DefaultAction.RETRY:
            break
        document = carried_out(document, answer, now=NOW, by="default policy")
        document = document.having(state=State.FAULTED, failures=document.failures + 1, attempt=document.attempt + 1)
    free = [(DefaultAction.RETRY, wait, False) for wait in (0, 30, 90)]
    assert waits == [*free, (DefaultAction.RETRY, 7, True), (DefaultAction.FAIL, 0, True)]
