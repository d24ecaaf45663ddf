"""A pilot that drains gives back what it has not begun: that costs the job nothing."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.jobs.claim import MAX_RELEASES, Applied, Repeated, claim, claimable, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.steering import hold, let_go
from forestay.domain.jobs.submission import Submission, new_job


def _claimed(document: JobDocument, name: str) -> tuple[JobDocument, AttemptResult]:
    claimed = claim(document, claim_id=name, pilot="p1", host="h", now=2)
    assert isinstance(claimed, JobDocument)
    return claimed, AttemptResult(claimed.token, name, AttemptOutcome.FAILURE, reason="not-started", host="h")


def _fresh() -> JobDocument:
    return new_job(Submission(Specification("s", "lab", "fit", ("true",)), owner="ann"), job="j", now=1, by="ann")


def test_a_job_that_was_given_back_can_be_claimed_again_and_has_spent_no_attempt() -> None:
    claimed, ending = _claimed(_fresh(), "c1")
    assert claimed.retry.max_attempts == 1
    verdict = end(claimed, ending, now=3, by="p1")
    assert isinstance(verdict, Applied)
    back = verdict.document
    assert (back.state, back.claim, back.failures, back.releases) == (State.AVAILABLE, None, 0, 0)
    assert claimable(back, 3)
    assert isinstance(end(back, ending, now=4, by="p1"), Repeated)
    again, _ = _claimed(back, "c2")
    assert again.attempt == 2


def test_a_held_job_is_given_back_when_it_is_continued() -> None:
    claimed, ending = _claimed(_fresh(), "c1")
    held = hold(claimed, holder="ann", now=3, by="ann")
    assert isinstance(held, JobDocument)
    verdict = end(held, ending, now=4, by="p1")
    assert isinstance(verdict, Applied)
    assert verdict.document.held_completion == ending
    free = let_go(verdict.document, holder="ann", now=5, by="ann")
    assert isinstance(free, JobDocument)
    assert (free.state, free.failures) == (State.AVAILABLE, 0)


def test_a_job_whose_pilot_had_to_go_spends_no_attempt_but_that_may_not_happen_for_ever() -> None:
    document = _fresh()
    for life in range(MAX_RELEASES):
        claimed, ending = _claimed(document, f"c{life}")
        verdict = end(claimed, replace(ending, reason="pilot-stopped", signal=15), now=3, by="p1")
        assert isinstance(verdict, Applied)
        document = verdict.document
        assert (document.claim, document.failures, document.releases) == (None, 0, life + 1)
        assert claimable(document, 3) == (life + 1 < MAX_RELEASES)
    assert document.state is State.FAULTED
