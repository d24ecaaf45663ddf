"""A job with external effects that was stopped after its start runs again only when a person says so, and so does one that kills its pilots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forestay.domain.jobs.claim import MAX_PILOT_DEATHS, Applied, claim, claimable, end, needs_person, release
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State
from forestay.domain.jobs.lifecycle import words
from forestay.domain.jobs.specification import Effects, RetryPolicy, Specification
from forestay.domain.jobs.steering import resubmit, retry
from forestay.domain.jobs.submission import JobElement, Submission, new_job, new_jobs


def _job(effects: Effects = Effects.EXTERNAL) -> JobDocument:
    spec = Specification("s", "lab", "pay", ("pay",), effects=effects, retry=RetryPolicy(max_attempts=5))
    return new_job(Submission(spec, owner="ann"), job="j", now=1, by="ann")


def _claimed(document: JobDocument, name: str = "c1") -> JobDocument:
    claimed = claim(document, claim_id=name, pilot="p1", host="h", now=9)
    assert isinstance(claimed, JobDocument)
    return claimed


def _lost(document: JobDocument, **how: Any) -> JobDocument:
    assert document.claim is not None
    terms = {"by": "watch", "reason": "its pilot fell silent", "overlap_possible": True, **how}
    lost = release(document, claim_id=document.claim.id, now=3, **terms)
    assert isinstance(lost, JobDocument)
    return lost


def _ended(document: JobDocument, **facts: Any) -> JobDocument:
    assert document.claim is not None
    ending = AttemptResult(document.token, document.claim.id, AttemptOutcome.FAILURE, host="h", **facts)
    verdict = end(document, ending, now=3, by="p1")
    assert isinstance(verdict, Applied)
    return verdict.document


@pytest.mark.finding("F-B2")
def test_a_lost_claim_of_a_job_with_external_effects_waits_for_a_person() -> None:
    lost = _lost(_claimed(_job()))
    assert lost.state is State.FAULTED
    assert "attempt 1 was stopped" in needs_person(lost)
    sentence = words(lost.history[-1])
    assert "external effects" in sentence
    assert "attempt 1 may still be running" in sentence
    again = retry(lost, now=5, by="ann", reason="it had not paid")
    assert isinstance(again, JobDocument)
    assert claimable(again, 5)


@pytest.mark.finding("F-B2")
@pytest.mark.parametrize("effects", [Effects.INTERNAL, Effects.RESUMABLE])
def test_other_jobs_run_again(effects: Effects) -> None:
    lost = _lost(_claimed(_job(effects)))
    assert claimable(lost, 3)
    assert "attempt 1 may still be running" in words(lost.history[-1])
    assert claimable(_ended(_claimed(_job(effects)), reason="pilot-stopped", signal=15), 3)


@pytest.mark.finding("F-B2")
def test_a_claim_that_was_surely_not_begun_goes_back() -> None:
    assert claimable(_lost(_claimed(_job()), overlap_possible=False, executed=False), 3)


@pytest.mark.finding("F-B2")
@pytest.mark.parametrize(
    "facts",
    [
        {"reason": "pilot-stopped", "signal": 15},
        {"reason": "pilot-stopped"},
        {"reason": "signal", "signal": 9},
        {"reason": "wall-limit", "signal": 15},
        {"reason": "exit", "exit_code": 137},
        {"reason": "output-failed", "exit_code": 0, "stage": "staging-out"},
        {"reason": "output-missing", "exit_code": 0, "stage": "staging-out"},
        {"reason": "start-failed", "stage": "executing"},
    ],
    ids=lambda facts: " ".join(map(str, facts.values())),
)
def test_any_stop_after_the_start_waits(facts: dict[str, Any]) -> None:
    stopped = _ended(_claimed(_job()), **facts)
    assert (stopped.state, bool(needs_person(stopped))) == (State.FAULTED, True)


@pytest.mark.finding("F-B2")
@pytest.mark.parametrize(
    "facts",
    [
        {"reason": "not-started"},
        {"reason": "exit", "exit_code": 1},
        {"reason": "transfer", "stage": "staging-in"},
        {"reason": "data-missing"},
        {"reason": "start-failed", "stage": "staging-in", "file": "folder"},
        {"reason": "start-failed", "stage": "executing", "file": "program"},
        {"reason": "start-failed"},
    ],
    ids=lambda facts: " ".join(map(str, facts.values())),
)
def test_what_was_not_begun_or_said_itself_that_it_failed_is_tried_again(facts: dict[str, Any]) -> None:
    assert claimable(_ended(_claimed(_job()), **facts), 3)


@pytest.mark.finding("F-B2")
def test_a_failure_of_an_earlier_attempt_says_nothing_of_a_lost_one() -> None:
    tried = _ended(_claimed(_job()), reason="exit", exit_code=1)
    assert claimable(tried, 3)
    lost = _lost(_claimed(tried, "c2"))
    assert (lost.state, bool(needs_person(lost))) == (State.FAULTED, True)


@pytest.mark.finding("F-B2")
def test_processes_that_could_not_be_ended_are_an_overlap_in_the_story() -> None:
    failed = _ended(_claimed(_job(Effects.INTERNAL)), reason="signal", signal=15, left_running=2)
    assert failed.overlap_possible
    assert any("2 of its processes may still be running" in words(line) for line in failed.history)


@pytest.mark.finding("F-B2")
def test_every_job_of_a_scatter_knows_its_effects() -> None:
    spec = replace(Specification("s", "lab", "pay", ("pay",)), effects=Effects.EXTERNAL)
    common = Submission(spec, owner="ann", labels={"a": "b"})
    (made,) = new_jobs(common, [JobElement("j1", 1, {}, None)], now=1, by="ann", trace="t")
    assert needs_person(_lost(_claimed(made)))


@pytest.mark.finding("F-B5")
def test_a_job_under_which_pilots_die_is_held_after_the_third() -> None:
    document = _job(Effects.INTERNAL)
    for death in range(MAX_PILOT_DEATHS):
        assert claimable(document, 3), death
        document = _lost(_claimed(document, f"c{death}"), reason="its pilot died", overlap_possible=False, died=True)
    assert document.state is State.FAULTED
    assert "3 pilots died while they ran the job" in needs_person(document)
    assert "3 pilots died while they ran it; it is suspected of killing them" in words(document.history[-1])
    for again in (retry(document, now=4, by="ann"), resubmit(document, now=4, by="ann")):
        assert isinstance(again, JobDocument)
        assert claimable(again, 4)
        assert claimable(_lost(_claimed(again, "c9"), died=True), 4), "what a person answered is not held against it"


@pytest.mark.finding("F-B5")
def test_pilots_that_fell_silent_or_had_to_go_are_not_held_against_a_job() -> None:
    document = _job(Effects.INTERNAL)
    for life in range(4):
        document = _lost(_claimed(document, f"c{life}"))
        document = _ended(_claimed(document, f"d{life}") if life < 3 else _claimed(document), reason="not-started")
        assert claimable(document, 3)
