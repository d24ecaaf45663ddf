"""What came of an incident, and whether it speaks for or against a verdict; the report adds up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.services.recorded import Story

from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.rules.answer import TRYING, Answer, Way, answer_of_decision, answer_of_steps, house_said
from forestay.domain.rules.incident_context import told_by
from forestay.domain.rules.outcome import (
    AMOUNTS,
    Attempt,
    Came,
    Outcome,
    earlier,
    faulted_job_came,
    incident_attempt,
    job_later,
    outcome_of,
)
from forestay.domain.rules.replay import Proof, Replay, Wrong, cost, judge

RULE = "domain/house#r1"


def came_of(story: Story) -> list[Outcome]:
    """What came of each of a job's incidents, in their order."""
    document, told = story.made()
    later, found = job_later(document), list[Outcome]()
    for incident, _ in reversed(told):
        attempt = incident_attempt(told_by(incident))
        found.append(outcome_of(attempt, later))
        later = earlier(later, attempt)
    return found[::-1]


@pytest.mark.parametrize(
    ("story", "came"),
    [
        (Story("j", ["node"]), [Came.MENDED]),
        (Story("j", ["node", "node", "node"]), [Came.MENDED] * 3),
        (Story("j", ["node", {"cause": "node", "by": "ann"}]), [Came.MENDED, Came.BY_HAND]),
        (Story("j", ["code", "code"], end=State.FAILED), [Came.AGAIN, Came.GIVEN_UP]),
        (Story("j", ["node", "code"], end=State.FAILED), [Came.OTHERWISE, Came.GIVEN_UP]),
        (Story("j", ["code", "code"], end=State.CANCELLED), [Came.AGAIN, Came.CANCELLED]),
        (Story("j", ["code"], end=State.FORCED_COMPLETE), [Came.FORCED]),
        (Story("j", ["code"], end=State.FAULTED), [Came.OPEN]),
        (Story("j", [{"cause": "code", "by": "exlet:i:1:0"}]), [Came.MENDED]),
        (Story("j", [{"cause": "code", "by": "case:c1"}]), [Came.MENDED]),
    ],
)
def test_what_came_of_an_incident_is_told_by_what_the_job_did_later(story: Story, came: list[Came]) -> None:
    assert [one.came for one in came_of(story)] == came


def test_what_the_next_attempt_had_more_and_where_it_ran() -> None:
    first, second = came_of(Story("j", [{"cause": "memory", "host": "n1"}, "memory"], memory=1 << 33, host="n2"))
    assert (first.more, first.other_host) == (frozenset(), False)
    assert (second.more, second.other_host) == (frozenset({"memory"}), True)
    assert second.tried is not None
    assert second.tried.core_seconds == 1800


@pytest.mark.parametrize(
    ("story", "came"),
    [
        (Story("j", ["node", "code"]), Came.MENDED),
        (Story("j", ["node", {"cause": "node", "by": "ann"}]), Came.BY_HAND),
        (Story("j", [{"cause": "code", "by": "exlet:i:1:0"}]), Came.MENDED),
        (Story("j", ["code", "code"], end=State.FAILED), Came.GIVEN_UP),
        (Story("j", ["code"], end=State.CANCELLED), Came.CANCELLED),
        (Story("j", ["code"], end=State.FORCED_COMPLETE), Came.FORCED),
        (Story("j", ["code"], end=State.FAULTED), Came.OPEN),
    ],
)
def test_what_came_of_a_job_with_faults_is_told_by_its_document_alone(story: Story, came: Came) -> None:
    document, _ = story.made()
    told, core_seconds = faulted_job_came(document)
    assert told is came
    assert (core_seconds > 0) == (came in (Came.MENDED, Came.BY_HAND))
    assert faulted_job_came(None) == (Came.UNKNOWN, 0.0)


def test_nothing_is_known_of_a_job_that_is_gone() -> None:
    assert outcome_of(Attempt(1), job_later(None)).came is Came.UNKNOWN


@pytest.mark.parametrize(
    ("steps", "way"),
    [
        ([{"action": "resubmit"}], Way.RETRY),
        ([{"action": "ladder"}], Way.RETRY),
        ([{"action": "resubmit", "needs": {"memory": {"factor": 2.0}}}], Way.CHANGED),
        ([{"action": "avoid-host"}, {"action": "resubmit"}], Way.ELSEWHERE),
        ([{"action": "resubmit", "how": "other-domain"}], Way.ELSEWHERE),
        ([{"action": "hold"}], Way.HOLD),
        ([{"action": "suspend", "target": "case"}], Way.HOLD),
        ([{"action": "force-fail"}], Way.FAIL),
        ([{"action": "rollback"}], Way.FAIL),
        ([{"action": "force-complete"}], Way.COMPLETE),
        ([{"action": "compensate", "worklets": []}, {"action": "restart"}], Way.OTHER),
        ([{"action": "notify", "text": "look"}], Way.OTHER),
    ],
)
def test_what_an_exlet_comes_to(steps: list[dict[str, object]], way: Way) -> None:
    assert answer_of_steps(steps, RULE).way is way


MENDED = Outcome(Came.MENDED, Attempt(2, ok=True))
AGAIN = Outcome(Came.AGAIN, Attempt(2, "code"))


@pytest.mark.parametrize(
    ("answer", "outcome", "wrong"),
    [
        (Answer(Way.HOLD, RULE), MENDED, Wrong.STOPS),
        (Answer(Way.FAIL, RULE), MENDED, Wrong.STOPS),
        (Answer(Way.COMPLETE, RULE), MENDED, Wrong.COUNTS),
        (Answer(Way.RETRY, RULE), AGAIN, Wrong.IN_VAIN),
        (Answer(Way.HOLD, RULE), Outcome(Came.BY_HAND, Attempt(2, ok=True)), None),
        (Answer(Way.FAIL, RULE), Outcome(Came.BY_HAND, Attempt(2, ok=True)), Wrong.STOPS),
        (Answer(Way.FAIL, RULE), Outcome(Came.FORCED), Wrong.STOPS),
        (Answer(Way.RETRY, RULE), MENDED, None),
        (Answer(Way.HOLD, RULE), AGAIN, None),
        # Nothing of the kind was tried: that it failed again says nothing.
        (Answer(Way.CHANGED, RULE, needs=frozenset({"memory"})), AGAIN, None),
        (Answer(Way.ELSEWHERE, RULE), AGAIN, None),
        (Answer(Way.CHANGED, RULE, needs=frozenset({"memory"})), Outcome(Came.AGAIN, Attempt(2, "x"), more=frozenset({"memory"})), Wrong.IN_VAIN),
        (Answer(Way.ELSEWHERE, RULE), Outcome(Came.AGAIN, Attempt(2, "x"), other_host=True), Wrong.IN_VAIN),
        # The house is compared, not judged.
        (Answer(Way.FAIL), MENDED, None),
    ],
)  # fmt: skip
def test_which_verdicts_are_wrong(answer: Answer, outcome: Outcome, wrong: Wrong | None) -> None:
    proof, found = judge(answer, outcome)
    assert found is wrong
    assert (proof is Proof.WRONG) == (wrong is not None)


def test_a_plain_retry_is_not_proven_by_what_more_memory_mended() -> None:
    outcome = Outcome(Came.MENDED, Attempt(2, ok=True), more=frozenset({"memory"}))
    assert judge(Answer(Way.RETRY, RULE), outcome)[0] is Proof.UNPROVEN
    assert judge(Answer(Way.CHANGED, RULE, needs=frozenset({"memory"})), outcome)[0] is Proof.RIGHT


def test_what_another_answer_would_have_cost() -> None:
    failed = Attempt(1, "code", seconds=100, amounts=(4, 0, 0, 0, 0))
    again = Outcome(Came.AGAIN, Attempt(2, "code", seconds=50, amounts=(4, 0, 0, 0, 0)))
    given_up = Outcome(Came.GIVEN_UP)
    retry, stop = Answer(Way.RETRY, RULE), Answer(Way.FAIL, RULE)
    assert cost(Answer(Way.RETRY), stop, failed, again) == (200, 0)
    assert cost(Answer(Way.FAIL), retry, failed, given_up) == (0, 400)
    assert cost(Answer(Way.RETRY), stop, failed, MENDED) == (0, 0), "the job had to run"
    assert cost(Answer(Way.HOLD), retry, failed, again) == (0, 0), "it was tried all the same"


def test_the_house_says_what_it_said_or_what_follows_from_the_incident() -> None:
    (incident, decision), *_ = Story("j", ["node"], decisions=["hold"]).made()[1]
    told = told_by(incident)
    assert house_said(incident, answer_of_decision(decision), told).way is Way.HOLD
    by_rule = Answer(Way.RETRY, RULE)
    assert house_said(incident, by_rule, told).way is Way.RETRY, "a lost node has free tries"


ways = st.sampled_from([way for way in Way if way is not Way.NOTHING])
answers = st.builds(Answer, ways, st.sampled_from([RULE, "domain/house#r2", "house policy"]), st.just(""))
attempts = st.builds(
    Attempt, st.integers(1, 3), st.sampled_from(["code", "node"]), st.just("n1"), st.floats(0, 1e4), st.just((1, 0, 0, 0, 0)), st.booleans()
)  # fmt: skip
outcomes = st.builds(
    Outcome, st.sampled_from(list(Came)), st.one_of(st.none(), attempts), st.just(()), st.sets(st.sampled_from(AMOUNTS)).map(frozenset), st.booleans()
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 10**12), attempts, answers, answers, outcomes), max_size=40))
def test_the_report_adds_up(looked: list[tuple[int, Attempt, Answer, Answer, Outcome]]) -> None:
    report = Replay(shown=10)
    for place, (at, attempt, then, now, outcome) in enumerate(looked):
        report.take(str(place), at=at, job="j", attempt=attempt, then=then, now=now, outcome=outcome)
    report.finish()
    assert report.incidents == len(looked) == report.same + report.differs == sum(report.came.values())
    assert report.differs == sum(group.count for group in report.groups.values()) + report.more_groups
    assert report.by_rule == sum(tally.answered for tally in report.rules.values()) == sum(report.proof.values())
    assert report.wrongs == report.proof[Proof.WRONG] == sum(sum(one.wrong.values()) for one in report.rules.values())
    assert report.saved == pytest.approx(sum(one.saved for one in report.rules.values()) + _of_house(looked)[0])
    assert min(report.saved, report.spent) >= 0
    shown = report.examples()
    assert len(shown) <= 10
    assert [one.wrong is None for one in shown] == sorted(one.wrong is None for one in shown), "the wrong ones first"
    for tally in report.rules.values():
        assert tally.peak_hour <= tally.answered


def _of_house(looked: list[tuple[int, Attempt, Answer, Answer, Outcome]]) -> tuple[float, float]:
    costs = [
        cost(then, now, attempt, outcome)
        for _, attempt, then, now, outcome in looked
        if not now.by_rule and not now.same_as(then)
    ]
    return sum(one for one, _ in costs), sum(one for _, one in costs)


@given(answers, outcomes)
def test_no_verdict_that_nothing_is_known_of_is_wrong(answer: Answer, outcome: Outcome) -> None:
    _, wrong = judge(answer, outcome)
    if wrong is Wrong.IN_VAIN:
        assert answer.way in TRYING
        assert outcome.came is Came.AGAIN
    if outcome.came in {Came.OPEN, Came.UNKNOWN, Came.CANCELLED}:
        assert wrong is None


def test_what_a_person_did_is_kept_with_the_outcome() -> None:
    forced = Story("j", [{"cause": "code", "by": "ann", "event": Event.FORCE_COMPLETE}], end=State.FORCED_COMPLETE)
    (one,) = came_of(forced)
    assert [(hand.event, hand.by) for hand in one.hands] == [("force-complete", "ann")]
