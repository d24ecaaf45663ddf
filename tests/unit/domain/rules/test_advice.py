"""What people are told about another try agrees with what is done."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.default_policy import FREE_TRIES, DefaultAction, carried_out, default_answer
from forestay.domain.exceptions.incidents.incident import DEFAULT_POLICY, Decision, IncidentState
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.domain.jobs.claim import MAX_RELEASES
from forestay.domain.jobs.job_document import EFFECTS, AttemptOutcome, AttemptResult, JobDocument, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, WhenExhausted
from forestay.domain.rules.advice import advice_on, retry_advice
from forestay.domain.rules.answer import Answer, AnswerKind
from forestay.formats.rules.evidence_json import finding_to_json

NOW = 1_700_000_000_000
TRIES = re.compile(r"\bis tried again\b")
STOPS = re.compile(r"\bwaits for a person\b|\bis given up\b")
SETTLED = {
    DefaultAction.RETRY: IncidentState.COMPLETE,
    DefaultAction.HOLD: IncidentState.HELD,
    DefaultAction.FAIL: IncidentState.FAILED,
}


def faulted(failures: int, releases: int, policy: RetryPolicy, *, external: bool) -> JobDocument:
    last = AttemptResult(Token(0, failures), "claim", AttemptOutcome.FAILURE, exit_code=1, reason="exit")
    return JobDocument(
        "job", "lab", "spec", "one", "ann", NOW, NOW, Resources(), state=State.FAULTED, attempt=failures,
        failures=failures, releases=releases, last=last, retry=policy, extra={EFFECTS: "external"} if external else {},
    )  # fmt: skip


documents = st.builds(
    faulted,
    st.integers(1, 6),
    st.integers(0, MAX_RELEASES),
    st.builds(RetryPolicy, st.integers(1, 5), st.integers(0, 100), st.sampled_from(WhenExhausted)),
    external=st.booleans(),
)
findings = st.builds(
    CauseFinding, st.sampled_from(Cause), st.sampled_from([0.2, 0.6, 0.8, 0.95]), st.sampled_from(RetryNeed)
)
logs = st.sampled_from([(), ("fatal: network lost",), ("Missing files after 600 seconds",), ("ValueError",)])


@pytest.mark.finding("F-D13")
@given(documents, findings, logs, st.sampled_from([FREE_TRIES, (), (5,), (0,) * 8]), st.integers(1, 12))
def test_the_words_of_the_advice_and_the_act_agree_at_every_occurrence(
    document: JobDocument, found: CauseFinding, log: tuple[str, ...], free: tuple[int, ...], occurrences: int
) -> None:
    """Over all causes, retries, occurrences and policies: what is said of a failure is what is done about it."""
    evidence = Evidence(exit_code=1, log_tail=log)
    finding = with_verdict(found, evidence)
    for _ in range(occurrences):
        answer = default_answer(document, finding, free)
        detail = {"words": answer.words, "wait": answer.wait}
        decision = Decision("i", 1, "lab", NOW, answer.course.value, DEFAULT_POLICY, detail=detail)
        advice = advice_on(finding_to_json(finding), decision, SETTLED[answer.course], answer.words)
        after = carried_out(document, answer, now=NOW, by=DEFAULT_POLICY, cause=finding.cause.value)
        assert bool(TRIES.search(advice)) == (after.state is State.AVAILABLE), advice
        assert bool(STOPS.search(advice)) == (after.state is not State.AVAILABLE), advice
        assert answer.words in advice
        if after.state is not State.AVAILABLE:
            return
        helps = finding.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE)
        unknown = finding.cause is Cause.UNKNOWN and finding.retry is RetryNeed.NO
        assert helps or unknown or "even so, it is tried again" in advice, advice
        assert answer.charged or helps, "what another try does not help is not tried for free"
        document = after.having(state=State.FAULTED, attempt=after.attempt + 1, failures=after.failures + 1)


@pytest.mark.finding("F-D13")
@given(documents, findings, st.sampled_from([FREE_TRIES, (), (5,)]))
def test_by_itself_the_policy_ends(document: JobDocument, found: CauseFinding, free: tuple[int, ...]) -> None:
    finding = with_verdict(found, Evidence(exit_code=1))
    tries = 0
    while (answer := default_answer(document, finding, free)).course is DefaultAction.RETRY:
        tries += 1
        assert tries <= len(free) + document.retry.max_attempts
        after = carried_out(document, answer, now=NOW, by=DEFAULT_POLICY, cause=finding.cause.value)
        document = after.having(state=State.FAULTED, attempt=after.attempt + 1, failures=after.failures + 1)


@pytest.mark.finding("F-D13")
def test_a_failure_that_may_pass_says_why_it_is_not_tried_again() -> None:
    finding = with_verdict(CauseFinding(Cause.NETWORK, 0.76, RetryNeed.SAME), Evidence(exit_code=1))
    policy = RetryPolicy(1, when_exhausted=WhenExhausted.HOLD)
    answer = default_answer(faulted(1, 0, policy, external=True), finding)
    assert answer.course is DefaultAction.HOLD
    assert answer.words == "1 of 1 attempts used; it has external effects, so only a rule or a person tries it again"
    finding = with_verdict(CauseFinding(Cause.POLICY, 0.9, RetryNeed.SAME), Evidence(exit_code=1))
    assert (
        "without a rule policy failures are not retried"
        in default_answer(faulted(1, 0, policy, external=False), finding).words
    )


def test_a_safeguard_has_the_last_word() -> None:
    finding = {"cause": "network", "retry": "same", "tries": 4, "wait": 0}
    decision = Decision("i", 1, "lab", NOW, "retry", DEFAULT_POLICY, detail={"words": "free retry 1 of 4", "wait": 0})
    held = advice_on(finding, decision, IncidentState.HELD, "storm s1 is held")
    assert held == "Another try may help; it waits for a person (storm s1 is held)."
    done = advice_on(finding, decision, IncidentState.COMPLETE, "")
    assert done == "Another try may help: it is tried again as it is (free retry 1 of 4)."


@pytest.mark.parametrize("way", list(AnswerKind))
@pytest.mark.parametrize("need", list(RetryNeed))
def test_every_act_has_its_sentence(way: AnswerKind, need: RetryNeed) -> None:
    advice = retry_advice({"cause": "memory", "retry": need.value}, Answer(way, "domain/site#0f1e2d3c-4b5a"))
    trying = way in (AnswerKind.RETRY, AnswerKind.CHANGED, AnswerKind.ELSEWHERE)
    assert bool(TRIES.search(advice)) == trying
    assert not trying or "as rule 0f1e2d3c says" in advice
