"""What came of an incident, and whether it speaks for or against a verdict; the report adds up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.services.recorded import Story

from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.rules.answer import TRYING, Answer, AnswerKind, answer_of_decision, answer_of_steps, default_said
from forestay.domain.rules.context import told_by
from forestay.domain.rules.incident_outcome import (
    AMOUNTS,
    Attempt,
    IncidentOutcome,
    OutcomeKind,
    earlier,
    faulted_job_came,
    incident_attempt,
    job_later,
    outcome_of,
)
from forestay.domain.rules.replay import DecisionError, Proof, Replay, cost, judge

RULE = "domain/site#r1"


def came_of(story: Story) -> list[IncidentOutcome]:
    """What came of each of a job's incidents, in their order."""
    document, results = story.made()
    later, found_outcomes = job_later(document), list[IncidentOutcome]()
    for incident, _ in reversed(results):
        attempt = incident_attempt(told_by(incident))
        found_outcomes.append(outcome_of(attempt, later))
        later = earlier(later, attempt)
    return found_outcomes[::-1]


@pytest.mark.parametrize(
    ("story", "came"),
    [
        (Story("j", ["node"]), [OutcomeKind.RECOVERED]),
        (Story("j", ["node", "node", "node"]), [OutcomeKind.RECOVERED] * 3),
        (Story("j", ["node", {"cause": "node", "by": "ann"}]), [OutcomeKind.RECOVERED, OutcomeKind.BY_HAND]),
        (Story("j", ["code", "code"], end=State.FAILED), [OutcomeKind.AGAIN, OutcomeKind.GIVEN_UP]),
        (Story("j", ["node", "code"], end=State.FAILED), [OutcomeKind.OTHERWISE, OutcomeKind.GIVEN_UP]),
        (Story("j", ["code", "code"], end=State.CANCELLED), [OutcomeKind.AGAIN, OutcomeKind.CANCELLED]),
        (Story("j", ["code"], end=State.FORCED_COMPLETE), [OutcomeKind.FORCED]),
        (Story("j", ["code"], end=State.FAULTED), [OutcomeKind.OPEN]),
        (Story("j", [{"cause": "code", "by": "playbook:i:1:0"}]), [OutcomeKind.RECOVERED]),
        (Story("j", [{"cause": "code", "by": "run:c1"}]), [OutcomeKind.RECOVERED]),
    ],
)
def test_what_came_of_an_incident_is_told_by_what_the_job_did_later(story: Story, came: list[OutcomeKind]) -> None:
    assert [outcome.came for outcome in came_of(story)] == came


def test_what_the_next_attempt_had_more_and_where_it_ran() -> None:
    first, second = came_of(Story("j", [{"cause": "memory", "host": "n1"}, "memory"], memory=1 << 33, host="n2"))
    assert (first.more, first.other_host) == (frozenset(), False)
    assert (second.more, second.other_host) == (frozenset({"memory"}), True)
    assert second.tried is not None
    assert second.tried.core_seconds == 1800


@pytest.mark.parametrize(
    ("story", "came"),
    [
        (Story("j", ["node", "code"]), OutcomeKind.RECOVERED),
        (Story("j", ["node", {"cause": "node", "by": "ann"}]), OutcomeKind.BY_HAND),
        (Story("j", [{"cause": "code", "by": "playbook:i:1:0"}]), OutcomeKind.RECOVERED),
        (Story("j", ["code", "code"], end=State.FAILED), OutcomeKind.GIVEN_UP),
        (Story("j", ["code"], end=State.CANCELLED), OutcomeKind.CANCELLED),
        (Story("j", ["code"], end=State.FORCED_COMPLETE), OutcomeKind.FORCED),
        (Story("j", ["code"], end=State.FAULTED), OutcomeKind.OPEN),
    ],
)
def test_what_came_of_a_job_with_failures_is_told_by_its_document_alone(story: Story, came: OutcomeKind) -> None:
    document, _ = story.made()
    outcome_kind, core_seconds = faulted_job_came(document)
    assert outcome_kind is came
    assert (core_seconds > 0) == (came in (OutcomeKind.RECOVERED, OutcomeKind.BY_HAND))
    assert faulted_job_came(None) == (OutcomeKind.UNKNOWN, 0.0)


def test_nothing_is_known_of_a_job_that_is_gone() -> None:
    assert outcome_of(Attempt(1), job_later(None)).came is OutcomeKind.UNKNOWN


@pytest.mark.parametrize(
    ("steps", "way"),
    [
        ([{"action": "resubmit"}], AnswerKind.RETRY),
        ([{"action": "retry"}], AnswerKind.RETRY),
        ([{"action": "resubmit", "needs": {"memory": {"factor": 2.0}}}], AnswerKind.CHANGED),
        ([{"action": "avoid-host"}, {"action": "resubmit"}], AnswerKind.ELSEWHERE),
        ([{"action": "resubmit", "how": "other-domain"}], AnswerKind.ELSEWHERE),
        ([{"action": "hold"}], AnswerKind.HOLD),
        ([{"action": "suspend", "target": "run"}], AnswerKind.HOLD),
        ([{"action": "force-fail"}], AnswerKind.FAIL),
        ([{"action": "rollback"}], AnswerKind.FAIL),
        ([{"action": "force-complete"}], AnswerKind.COMPLETE),
        ([{"action": "compensate", "worklets": []}, {"action": "restart"}], AnswerKind.OTHER),
        ([{"action": "notify", "text": "look"}], AnswerKind.OTHER),
    ],
)
def test_what_a_playbook_comes_to(steps: list[dict[str, object]], way: AnswerKind) -> None:
    assert answer_of_steps(steps, RULE).way is way


RECOVERED = IncidentOutcome(OutcomeKind.RECOVERED, Attempt(2, ok=True))
AGAIN = IncidentOutcome(OutcomeKind.AGAIN, Attempt(2, "code"))


@pytest.mark.parametrize(
    ("answer", "outcome", "wrong"),
    [
        (Answer(AnswerKind.HOLD, RULE), RECOVERED, DecisionError.STOPS),
        (Answer(AnswerKind.FAIL, RULE), RECOVERED, DecisionError.STOPS),
        (Answer(AnswerKind.COMPLETE, RULE), RECOVERED, DecisionError.COUNTS),
        (Answer(AnswerKind.RETRY, RULE), AGAIN, DecisionError.IN_VAIN),
        (Answer(AnswerKind.HOLD, RULE), IncidentOutcome(OutcomeKind.BY_HAND, Attempt(2, ok=True)), None),
        (Answer(AnswerKind.FAIL, RULE), IncidentOutcome(OutcomeKind.BY_HAND, Attempt(2, ok=True)), DecisionError.STOPS),
        (Answer(AnswerKind.FAIL, RULE), IncidentOutcome(OutcomeKind.FORCED), DecisionError.STOPS),
        (Answer(AnswerKind.RETRY, RULE), RECOVERED, None),
        (Answer(AnswerKind.HOLD, RULE), AGAIN, None),
        # Nothing of the kind was tried: that it failed again says nothing.
        (Answer(AnswerKind.CHANGED, RULE, needs=frozenset({"memory"})), AGAIN, None),
        (Answer(AnswerKind.ELSEWHERE, RULE), AGAIN, None),
        (Answer(AnswerKind.CHANGED, RULE, needs=frozenset({"memory"})), IncidentOutcome(OutcomeKind.AGAIN, Attempt(2, "x"), more=frozenset({"memory"})), DecisionError.IN_VAIN),
        (Answer(AnswerKind.ELSEWHERE, RULE), IncidentOutcome(OutcomeKind.AGAIN, Attempt(2, "x"), other_host=True), DecisionError.IN_VAIN),
        # The default policy is compared, not judged.
        (Answer(AnswerKind.FAIL), RECOVERED, None),
    ],
)  # fmt: skip
def test_which_verdicts_are_wrong(answer: Answer, outcome: IncidentOutcome, wrong: DecisionError | None) -> None:
    proof, error = judge(answer, outcome)
    assert error is wrong
    assert (proof is Proof.WRONG) == (wrong is not None)


def test_a_plain_retry_is_not_proven_by_what_more_memory_recovered() -> None:
    outcome = IncidentOutcome(OutcomeKind.RECOVERED, Attempt(2, ok=True), more=frozenset({"memory"}))
    assert judge(Answer(AnswerKind.RETRY, RULE), outcome)[0] is Proof.UNPROVEN
    assert judge(Answer(AnswerKind.CHANGED, RULE, needs=frozenset({"memory"})), outcome)[0] is Proof.RIGHT


def test_what_another_answer_would_have_cost() -> None:
    failed = Attempt(1, "code", seconds=100, amounts=(4, 0, 0, 0, 0))
    again = IncidentOutcome(OutcomeKind.AGAIN, Attempt(2, "code", seconds=50, amounts=(4, 0, 0, 0, 0)))
    given_up = IncidentOutcome(OutcomeKind.GIVEN_UP)
    retry, stop = Answer(AnswerKind.RETRY, RULE), Answer(AnswerKind.FAIL, RULE)
    assert cost(Answer(AnswerKind.RETRY), stop, failed, again) == (200, 0)
    assert cost(Answer(AnswerKind.FAIL), retry, failed, given_up) == (0, 400)
    assert cost(Answer(AnswerKind.RETRY), stop, failed, RECOVERED) == (0, 0), "the job had to run"
    assert cost(Answer(AnswerKind.HOLD), retry, failed, again) == (0, 0), "it was tried all the same"


def test_the_default_policy_says_what_it_said_or_what_follows_from_the_incident() -> None:
    (incident, decision), *_ = Story("j", ["node"], decisions=["hold"]).made()[1]
    fields = told_by(incident)
    assert default_said(incident, answer_of_decision(decision), fields).way is AnswerKind.HOLD
    by_rule = Answer(AnswerKind.RETRY, RULE)
    assert default_said(incident, by_rule, fields).way is AnswerKind.RETRY, "a lost node has free tries"


ways = st.sampled_from([way for way in AnswerKind if way is not AnswerKind.NOTHING])
answers = st.builds(Answer, ways, st.sampled_from([RULE, "domain/site#r2", "default policy"]), st.just(""))
attempts = st.builds(
    Attempt, st.integers(1, 3), st.sampled_from(["code", "node"]), st.just("n1"), st.floats(0, 1e4), st.just((1, 0, 0, 0, 0)), st.booleans()
)  # fmt: skip
outcomes = st.builds(
    IncidentOutcome, st.sampled_from(list(OutcomeKind)), st.one_of(st.none(), attempts), st.just(()), st.sets(st.sampled_from(AMOUNTS)).map(frozenset), st.booleans()
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 10**12), attempts, answers, answers, outcomes), max_size=40))
def test_the_report_adds_up(looked: list[tuple[int, Attempt, Answer, Answer, IncidentOutcome]]) -> None:
    report = Replay(shown=10)
    for place, (at, attempt, then, now, outcome) in enumerate(looked):
        report.take(str(place), at=at, job="j", attempt=attempt, then=then, now=now, outcome=outcome)
    report.finish()
    assert report.incidents == len(looked) == report.same + report.differs == sum(report.came.values())
    assert report.differs == sum(group.count for group in report.groups.values()) + report.more_groups
    assert report.by_rule == sum(tally.answered for tally in report.rules.values()) == sum(report.proof.values())
    assert report.wrongs == report.proof[Proof.WRONG] == sum(sum(rule.wrong.values()) for rule in report.rules.values())
    assert report.saved == pytest.approx(
        sum(rule.saved for rule in report.rules.values()) + _by_default_policy(looked)[0]
    )
    assert min(report.saved, report.spent) >= 0
    shown = report.examples()
    assert len(shown) <= 10
    assert [incident.wrong is None for incident in shown] == sorted(incident.wrong is None for incident in shown), (
        "the wrong ones first"
    )
    for tally in report.rules.values():
        assert tally.peak_hour <= tally.answered


def _by_default_policy(looked: list[tuple[int, Attempt, Answer, Answer, IncidentOutcome]]) -> tuple[float, float]:
    costs = [
        cost(then, now, attempt, outcome)
        for _, attempt, then, now, outcome in looked
        if not now.by_rule and not now.same_as(then)
    ]
    return sum(other_cost for other_cost, _ in costs), sum(other_cost for _, other_cost in costs)


@given(answers, outcomes)
def test_no_verdict_that_nothing_is_known_of_is_wrong(answer: Answer, outcome: IncidentOutcome) -> None:
    _, wrong = judge(answer, outcome)
    if wrong is DecisionError.IN_VAIN:
        assert answer.way in TRYING
        assert outcome.came is OutcomeKind.AGAIN
    if outcome.came in {OutcomeKind.OPEN, OutcomeKind.UNKNOWN, OutcomeKind.CANCELLED}:
        assert wrong is None


def test_what_a_person_did_is_kept_with_the_outcome() -> None:
    forced = Story("j", [{"cause": "code", "by": "ann", "event": Event.FORCE_COMPLETE}], end=State.FORCED_COMPLETE)
    (outcome,) = came_of(forced)
    assert [(hand.event, hand.by) for hand in outcome.hands] == [("force-complete", "ann")]
