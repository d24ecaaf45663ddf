"""One job's document under everything that can happen to it, in any order, against a model that only counts.

The invariants are those of the claim protocol as far as they are the document's own: the token only goes up and is
given once, one winner at most and never another, a final state is never left, the story has every line once, a held job is not
given away, a kept end is applied when the last holder lets go, and a late end only counts if nobody has claimed since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.sizes import examples

from forestay.domain.jobs.claim import (
    MAX_RELEASES,
    Applied,
    Repeated,
    Superseded,
    claim,
    claimable,
    confirm,
    end,
    release,
)
from forestay.domain.jobs.job_document import (
    FINAL,
    AttemptOutcome,
    AttemptResult,
    Delivery,
    JobDocument,
    Manifest,
    State,
    Token,
    Transition,
)
from forestay.domain.jobs.lifecycle import Chapter, TransitionRefused, fold, whole_story
from forestay.domain.jobs.specification import RetryPolicy, Specification, WhenExhausted
from forestay.domain.jobs.steering import cancel, force, hold, let_go, retry, take_notice
from forestay.domain.jobs.submission import Submission, new_job
from forestay.formats.jobs.job_json import job_from_json, job_to_json

PEOPLE = ("ann", "bob")
fates = st.sampled_from([True, True, True, True, False])
"""Whether a write takes place."""
policies = st.builds(RetryPolicy, st.integers(3, 9), st.integers(0, 3), st.sampled_from(WhenExhausted))


@dataclass
class _Granted:
    """A claim that was given, as the model remembers it."""

    id: str
    token: Token
    pilot: str
    ended: AttemptResult | None = None
    """The end that was applied or is kept."""


class ClaimMachine(RuleBasedStateMachine):
    """The document is `document`; what was ever given and said is in the model beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        specification = Specification("s", "lab", "fit", ("true",))
        asked = Submission(specification, owner="ann", callback="https://example.org/done")
        self.document = new_job(asked, job="j", now=self.now, by="ann")
        self.chapters: list[Chapter] = []
        self.story: list[Transition] = list(self.document.history)
        self.granted: dict[str, _Granted] = {}
        self.winner: AttemptResult | None = None
        self.tries = 0

    # -- what happens ------------------------------------------------------------------------------------------

    @initialize(first=st.booleans(), written=fates)
    def create(self, first: bool, written: bool) -> None:
        """A job may come to be with its first claim on it; if that write was lost it comes to be without."""
        name = self._fresh_name()
        claimed = claim(self.document, claim_id=name, pilot="p1", host="h", now=self.now)
        assert isinstance(claimed, JobDocument)
        if first and written:
            self.document = claimed
            self.story = list(claimed.history)
            self.granted[name] = _Granted(name, claimed.token, "p1")

    @precondition(lambda self: self.document.rev == 1)
    @rule(policy=policies)
    def choose_policy(self, policy: RetryPolicy) -> None:
        self.document = replace(self.document, retry=policy)

    @rule(passed=st.integers(0, 9000))
    def time_passes(self, passed: int) -> None:
        self.now += passed

    @rule(pilot=st.sampled_from(["p1", "p2", "p3"]), written=fates)
    def claim(self, pilot: str, written: bool) -> None:
        before, name = self.document, self._fresh_name()
        after = claim(before, claim_id=name, pilot=pilot, host="h", now=self.now)
        may = before.state is State.AVAILABLE and not before.holders and before.not_before <= self.now
        assert claimable(before, self.now) == may == isinstance(after, JobDocument)
        if isinstance(after, JobDocument) and self._put(after, written=written):
            assert after.token > before.token
            assert after.token not in {entry.token for entry in self.granted.values()}
            self.granted[name] = _Granted(name, after.token, pilot)

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), outcome=st.sampled_from(AttemptOutcome), written=fates)
    def end(self, data: st.DataObject, outcome: AttemptOutcome, written: bool) -> None:
        """Any claim that was ever given may end, now or long after, and say so again."""
        value = self.granted[data.draw(st.sampled_from(self._names()))]
        ending = value.ended or self._ending(value, outcome)
        before = self.document
        verdict = end(before, ending, now=self.now, by=value.pilot)
        newest = max(known.token for known in self.granted.values())
        if isinstance(verdict, Superseded):
            holds = before.claim is not None and before.claim.id == value.id
            assert not holds
            late = value.token == newest and before.former_claim == value.id and ending.outcome is AttemptOutcome.OK
            assert before.final or value.ended is not None or not late
            return
        if isinstance(verdict, Repeated):
            assert verdict.document is before
            assert value.ended == ending
            self._put(confirm(before), written=written)
            return
        assert isinstance(verdict, Applied)
        assert value.token == newest == before.token
        assert value.ended is None
        assert before.state not in FINAL
        late = before.claim is None
        if late:
            assert before.former_claim == value.id
            assert ending.outcome is AttemptOutcome.OK
        if self._put(verdict.document, written=written):
            value.ended = ending
            held = bool(before.holders)
            assert (verdict.document.held_completion == ending) == held
            if held:
                assert verdict.document.state is State.RUNNING
            else:
                self._applied(before, ending)

    @rule(by=st.sampled_from(PEOPLE), overlap=st.booleans(), data=st.data(), written=fates)
    def release(self, by: str, overlap: bool, data: st.DataObject, written: bool) -> None:
        name = data.draw(st.sampled_from([*self._names(), "unheard-of"]))
        before = self.document
        after = release(before, claim_id=name, now=self.now, by=by, reason="gone", overlap_possible=overlap)
        holds = before.claim is not None and before.claim.id == name
        assert isinstance(after, JobDocument) == holds
        if isinstance(after, JobDocument) and self._put(after, written=written):
            assert after.token == before.token
            assert after.former_claim == name
            expected = State.AVAILABLE if before.releases + 1 < MAX_RELEASES else State.FAULTED
            assert after.state is expected
            assert after.overlap_possible >= (overlap or before.overlap_possible)

    @rule(by=st.sampled_from(PEOPLE), written=fates)
    def hold(self, by: str, written: bool) -> None:
        before = self.document
        after = hold(before, holder=by, now=self.now, by=by)
        assert isinstance(after, TransitionRefused) == before.final
        if isinstance(after, JobDocument):
            assert (after is before) == (by in before.holders)
            self._put(after, written=written)

    @rule(by=st.sampled_from(PEOPLE), written=fates)
    def let_go(self, by: str, written: bool) -> None:
        before = self.document
        after = let_go(before, holder=by, now=self.now, by=by)
        assert isinstance(after, JobDocument) == (by in before.holders)
        if isinstance(after, JobDocument) and self._put(after, written=written):
            kept = before.held_completion
            if kept is not None and not after.holders:
                assert after.held_completion is None
                self._applied(before, kept)
            else:
                assert after.held_completion == kept
                assert after.rev == before.rev + 1

    @precondition(lambda self: self.document.state is State.FAULTED)
    @rule(written=fates)
    def retry(self, written: bool) -> None:
        after = retry(self.document, now=self.now, by="ann")
        assert isinstance(after, JobDocument)
        self._put(after, written=written)

    @precondition(lambda self: self.document.attempt > 3)
    @rule(written=fates)
    def cancel(self, written: bool) -> None:
        after = cancel(self.document, now=self.now, by="ann")
        assert isinstance(after, TransitionRefused) == self.document.final
        if isinstance(after, JobDocument):
            self._put(after, written=written)

    @precondition(lambda self: self.document.attempt > 3)
    @rule(to=st.sampled_from([State.FORCED_COMPLETE, State.FAILED]), ago=st.integers(0, 1), written=fates)
    def force(self, to: State, ago: int, written: bool) -> None:
        before = self.document
        expected = Token(before.generation, before.attempt - ago)
        after = force(before, to=to, expected=expected, now=self.now, by="ann", reason="seen")
        assert isinstance(after, TransitionRefused) == (before.final or ago > 0)
        if isinstance(after, JobDocument):
            self._put(after, written=written)

    @precondition(lambda self: self.document.final)
    @rule(done=st.booleans(), written=fates)
    def notify(self, done: bool, written: bool) -> None:
        due = None if done else self.now + 1000
        after = take_notice(self.document, due=due, done=done, now=self.now, by="reconciler", note="ok")
        assert isinstance(after, JobDocument)
        self._put(after, written=written)

    @precondition(lambda self: not self.document.final)
    @rule()
    def notify_too_early(self) -> None:
        after = take_notice(self.document, due=None, done=True, now=self.now, by="reconciler", note="ok")
        assert isinstance(after, TransitionRefused)

    @rule(written=fates)
    def confirm(self, written: bool) -> None:
        self._put(confirm(self.document), written=written)

    # -- what must hold ----------------------------------------------------------------------------------------

    @invariant()
    def the_story_has_every_line_once(self) -> None:
        assert list(whole_story(self.document, self.chapters)) == self.story
        assert [line.rev for line in self.story] == list(range(1, self.document.rev + 1))

    @invariant()
    def what_is_stored_reads_back_the_same(self) -> None:
        assert job_from_json(orjson.loads(orjson.dumps(job_to_json(self.document)))) == self.document

    @invariant()
    def one_winner_at_most(self) -> None:
        assert self.document.winner == self.winner
        assert (self.document.state is State.COMPLETED) == (self.winner is not None)
        if self.winner is not None:
            assert self.granted[self.winner.claim].token == self.winner.token

    @invariant()
    def claims_and_states_agree(self) -> None:
        document = self.document
        running = document.state is State.RUNNING
        assert running == (document.claim is not None or document.held_completion is not None)
        assert document.claim is None or document.held_completion is None
        assert document.held_completion is None or document.holders
        if document.claim is not None:
            assert self.granted[document.claim.id].token == document.token
            assert document.former_claim is None
        if document.final:
            assert not document.holders or document.state is State.FAILED
            assert isinstance(document.delivery, Delivery)
            assert document.delivery.due is not None or document.delivery.tries

    def _put(self, after: JobDocument, *, written: bool) -> bool:
        """Try to store: what is not written leaves at most a chapter behind."""
        before = self.document
        lines = tuple(line for line in after.history if line.rev > before.rev)
        after, chapter = fold(after)
        if chapter is not None:
            self.chapters.append(chapter)
        if not written:
            return False
        assert after.token >= before.token
        assert before.state not in FINAL or after.state is before.state
        assert before.winner is None or after.winner == before.winner
        assert len(lines) == after.rev - before.rev
        self.story += lines
        self.document = after
        return True

    def _applied(self, before: JobDocument, ending: AttemptResult) -> None:
        """An end was applied to what stood before: check what became of the job."""
        after = self.document
        assert after.last == ending
        if ending.outcome is AttemptOutcome.OK:
            assert after.state is State.COMPLETED
            assert self.winner is None
            self.winner = ending
            return
        failures = before.failures + 1
        assert after.failures == failures
        if failures < before.retry.max_attempts:
            assert after.state is State.AVAILABLE
            assert after.not_before >= self.now
        elif before.retry.when_exhausted is WhenExhausted.FAIL:
            assert after.state is State.FAILED
        else:
            assert after.state is State.FAULTED

    def _names(self) -> list[str]:
        """Every claim that was given, the newest more often than the others."""
        names = sorted(self.granted, key=lambda name: self.granted[name].token)
        return names + names[-1:] * 5

    def _fresh_name(self) -> str:
        self.tries += 1
        return f"c{self.tries}"

    def _ending(self, value: _Granted, outcome: AttemptOutcome) -> AttemptResult:
        manifest = Manifest(f"{value.token.generation}.{value.token.attempt}", "0" * 64, 1, 10)
        good = outcome is AttemptOutcome.OK
        return AttemptResult(
            value.token,
            value.id,
            outcome,
            exit_code=0 if good else 1 if value.pilot == "p1" else None,
            signal=9 if not good and value.pilot == "p2" else None,
            host="h",
            manifest=manifest if good else None,
        )


def _released(*, quarantined: bool = False) -> tuple[JobDocument, AttemptResult]:
    """A job whose first claim was taken away, and the good end that this claim has after all."""
    asked = Submission(Specification("s", "lab", "fit", ("true",)), owner="ann")
    fresh = new_job(asked, job="j", now=1, by="ann")
    claimed = claim(fresh, claim_id="c1", pilot="p1", host="h", now=2)
    assert isinstance(claimed, JobDocument)
    claimed = replace(claimed, releases=MAX_RELEASES - 1 if quarantined else 0)
    freed = release(claimed, claim_id="c1", now=3, by="reconciler", reason="silent", overlap_possible=True)
    assert isinstance(freed, JobDocument)
    assert freed.state is (State.FAULTED if quarantined else State.AVAILABLE)
    return freed, AttemptResult(Token(0, 1), "c1", AttemptOutcome.OK, exit_code=0, host="h")


@pytest.mark.ledger("P4-14")
@pytest.mark.parametrize("quarantined", [False, True])
def test_a_late_good_end_is_adopted_when_nobody_has_claimed_since(quarantined: bool) -> None:
    freed, ending = _released(quarantined=quarantined)
    verdict = end(freed, ending, now=4, by="p1")
    assert isinstance(verdict, Applied)
    assert verdict.document.state is State.COMPLETED
    assert verdict.document.winner == ending
    assert isinstance(end(verdict.document, ending, now=5, by="p1"), Repeated)


@pytest.mark.finding("F-C9")
@pytest.mark.parametrize(
    "change",
    [
        {"outcome": AttemptOutcome.FAILURE, "exit_code": 1},
        {"exit_code": None, "signal": 9},
        {"manifest": Manifest("/outputs/j/0.1.c1/manifest.json", "f" * 64, 1, 1)},
    ],
    ids=str,
)
def test_an_end_that_contradicts_the_recorded_one_is_evidence(change: dict[str, Any]) -> None:
    freed, ending = _released()
    verdict = end(freed, ending, now=4, by="p1")
    assert isinstance(verdict, Applied)
    other = end(verdict.document, replace(ending, **change), now=5, by="p1")
    assert isinstance(other, Superseded)
    assert "says otherwise" in other.reason
    assert isinstance(end(verdict.document, replace(ending, wall=3.5, peak_memory=1), now=5, by="p1"), Repeated)


@pytest.mark.ledger("P4-14")
def test_a_late_end_is_evidence_when_someone_has_claimed_since() -> None:
    freed, ending = _released()
    again = claim(freed, claim_id="c2", pilot="p2", host="h", now=4)
    assert isinstance(again, JobDocument)
    assert again.token == Token(0, 2)
    assert isinstance(end(again, ending, now=5, by="p1"), Superseded)


def test_a_late_bad_end_is_evidence() -> None:
    freed, ending = _released()
    assert isinstance(end(freed, replace(ending, outcome=AttemptOutcome.FAILURE), now=4, by="p1"), Superseded)


def test_a_late_good_end_of_a_held_job_is_kept_and_counts_when_it_is_continued() -> None:
    freed, ending = _released()
    held = hold(freed, holder="ann", now=4, by="ann")
    assert isinstance(held, JobDocument)
    verdict = end(held, ending, now=5, by="p1")
    assert isinstance(verdict, Applied)
    assert verdict.document.state is State.RUNNING
    refused = release(verdict.document, claim_id="c1", now=6, by="reconciler", reason="silent", overlap_possible=True)
    assert isinstance(refused, TransitionRefused)
    gone_on = let_go(verdict.document, holder="ann", now=7, by="ann")
    assert isinstance(gone_on, JobDocument)
    assert gone_on.winner == ending


TestClaims = pytest.mark.ledger("P4-01", "P4-02", "P4-03")(ClaimMachine.TestCase)
TestClaims.settings = settings(max_examples=examples(120), stateful_step_count=60, deadline=None)
