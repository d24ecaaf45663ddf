"""Rules are proposed where the support is enough, and are true of what supports them."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.playbook import Playbook, step_from_plain
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.rules.incident_outcome import AMOUNTS, Attempt, IncidentOutcome, ManualAction, OutcomeKind
from forestay.domain.rules.proposal import EXCEPTIONS, LEAST, FollowUpKind, Proposal, Proposals, in_words, worth

ABORT = ExceptionType.ABORT
GIB = 1 << 30


class Seen(NamedTuple):
    facts: dict[str, object]
    attempt: Attempt
    outcome: IncidentOutcome


def seen(cause: str = "node", *, ok: bool = True, memory: int = 0, elsewhere: bool = False, **fields: object) -> Seen:
    """A failure, and the try that followed."""
    after = Attempt(2, "" if ok else cause, "b" if elsewhere else "a", 10, (1, GIB + memory, 0, 0, 0), ok)
    came = OutcomeKind.RECOVERED if ok else OutcomeKind.AGAIN
    more = frozenset({"memory"}) if memory else frozenset[str]()
    facts = {name.replace("__", "."): value for name, value in fields.items()}
    return Seen(
        {"cause": cause, **facts},
        Attempt(1, cause, "a", 10, (1, GIB, 0, 0, 0)),
        IncidentOutcome(came, after, (), more, elsewhere),
    )


def by_hand(event: str, came: OutcomeKind, cause: str = "time") -> Seen:
    return Seen({"cause": cause}, Attempt(1, cause), IncidentOutcome(came, None, (ManualAction(1, event, "ann"),)))


def proposed(*many: Seen) -> list[Proposal]:
    looked = Proposals()
    for place, entry in enumerate(many):
        looked.take(f"i{place}", ABORT, entry.facts, entry.attempt, entry.outcome)
    return looked.made()


@pytest.mark.ledger("P0-30")
def test_what_helped_three_times_is_proposed_and_what_helped_twice_is_not() -> None:
    assert proposed(seen(), seen()) == []
    (proposal,) = proposed(seen(), seen(), seen())
    assert (proposal.condition, proposal.steps, proposal.helped, proposal.tried) == (
        'cause == "node"',
        ({"action": "retry"},),
        3,
        3,
    )
    assert list(in_words(proposal)) == ["Of failures with cause node, a retry recovered 3 of 3."]


@pytest.mark.ledger("P0-30")
def test_too_many_exceptions_in_the_broad_leave_the_narrow() -> None:
    good = [seen("code", pattern="p1", evidence__exit_code=7) for _ in range(4)]
    bad = [seen("code", ok=False, pattern="p2", evidence__exit_code=8) for _ in range(4)]
    proposals = {proposal.condition: proposal for proposal in proposed(*good, *bad)}
    retry = proposals['cause == "code" && pattern == "p1" && evidence.exit_code == 7']
    ask = proposals['cause == "code" && pattern == "p2" && evidence.exit_code == 8']
    assert (retry.remedy.kind, ask.remedy.kind) == (FollowUpKind.RETRY, FollowUpKind.ASK)


def test_a_cause_that_is_not_known_is_not_answered_by_that_alone() -> None:
    assert proposed(*[seen("unknown") for _ in range(5)]) == []
    (proposal,) = proposed(*[seen("unknown", job__name="align") for _ in range(5)])
    assert proposal.condition == 'cause == "unknown" && job.name == "align"'


def test_more_of_something_is_bounded_by_what_was_seen() -> None:
    (proposal,) = proposed(seen("memory", memory=GIB), seen("memory", memory=3 * GIB), seen("memory", memory=GIB))
    assert proposal.steps == (
        {"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 4.0, "at_most": 4 * GIB}}},
    )


def test_another_host_is_proposed_only_where_the_same_one_does_not_do() -> None:
    away = [seen(elsewhere=True) for _ in range(4)]
    (proposal,) = proposed(*away)
    assert proposal.remedy.kind is FollowUpKind.ELSEWHERE
    assert {proposal.remedy.kind for proposal in proposed(*away, *[seen() for _ in range(4)])} == {FollowUpKind.RETRY}
    assert FollowUpKind.ELSEWHERE in {
        proposal.remedy.kind for proposal in proposed(*away, *[seen(ok=False) for _ in range(4)])
    }


@pytest.mark.parametrize(
    ("event", "came", "kind"),
    [
        ("force-complete", OutcomeKind.FORCED, FollowUpKind.COMPLETE),
        ("force-fail", OutcomeKind.GIVEN_UP, FollowUpKind.FAIL),
        ("cancel", OutcomeKind.CANCELLED, FollowUpKind.FAIL),
    ],
)
def test_what_people_did_by_hand_is_proposed(event: str, came: OutcomeKind, kind: FollowUpKind) -> None:
    (proposal,) = proposed(*[by_hand(event, came) for _ in range(3)])
    assert (proposal.remedy.kind, proposal.by_hand) == (kind, 3)


def test_what_changes_nothing_or_is_wrong_too_often_is_not_worth_showing() -> None:
    assert worth(answered=20, differs=5, wrong=2)
    assert not worth(answered=20, differs=0, wrong=0)
    assert not worth(answered=20, differs=20, wrong=3)


_causes = st.sampled_from(["node", "memory", "code", "unknown"])
_texts = st.sampled_from(["", "p1", 'odd " \\ text', "Zürich"])
_attempts = st.builds(
    Attempt, st.integers(1, 3), _causes, st.sampled_from(["a", "b"]), st.just(1.0),
    st.tuples(*[st.integers(0, 3)] * len(AMOUNTS)), st.booleans(),
)  # fmt: skip
_outcomes = st.builds(
    IncidentOutcome, st.sampled_from(list(OutcomeKind)), st.one_of(st.none(), _attempts),
    st.lists(st.builds(ManualAction, st.integers(1, 2), st.sampled_from(["retry", "cancel", "force-fail", "force-complete"]), st.just("ann")), max_size=2).map(tuple),
    st.sets(st.sampled_from(AMOUNTS), max_size=2).map(frozenset), st.booleans(),
)  # fmt: skip
_seen = st.builds(
    lambda cause, pattern, name, code, attempt, outcome: Seen(
        {"cause": cause, "pattern": pattern, "job.name": name, "evidence.exit_code": code}, attempt, outcome
    ),
    _causes, _texts, _texts, st.sampled_from([None, 1, 137]), _attempts, _outcomes,
)  # fmt: skip


@pytest.mark.ledger("P0-30")
@given(st.lists(_seen, max_size=60))
def test_every_proposal_has_its_support_and_is_true_of_it(many: list[Seen]) -> None:
    proposals = proposed(*many)
    for proposal in proposals:
        assert proposal.helped >= LEAST
        assert proposal.tried - proposal.helped <= EXCEPTIONS * proposal.tried
        assert 0 <= proposal.by_hand <= proposal.helped
        for example in proposal.examples:
            fields = many[int(example[1:])].facts
            for comparison in proposal.condition.split(" && "):
                name, _, value = comparison.partition(" == ")
                assert fields[name] == json.loads(value)
        steps = tuple(step_from_plain(step) for step in proposal.steps)
        assert check_playbook(Playbook("in-place", steps), ABORT) == []
        assert list(in_words(proposal))
    assert len({(proposal.condition, proposal.remedy) for proposal in proposals}) == len(proposals)
    assert {proposal.condition for proposal in proposed(*many)} == {proposal.condition for proposal in proposals}


@given(st.lists(_seen, max_size=40), st.randoms(use_true_random=False))
def test_the_order_of_the_incidents_does_not_matter(many: list[Seen], chance: object) -> None:
    other = list(many)
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert {(proposal.condition, proposal.helped, proposal.tried) for proposal in proposed(*many)} == {
        (proposal.condition, proposal.helped, proposal.tried) for proposal in proposed(*other)
    }


def test_one_error_is_the_narrowest_group_and_what_a_person_decided_counts_as_by_hand() -> None:
    looked = Proposals()
    for place in range(4):
        entry = seen("unknown", memory=GIB, exception__fingerprint="1-a", host__name=f"h{place}", evidence__stage="x")
        looked.take(f"i{place}", ABORT, entry.facts, entry.attempt, entry.outcome, by_person=place < 3)
    (proposal,) = looked.made()
    assert proposal.condition == 'cause == "unknown" && exception.fingerprint == "1-a"'
    assert (proposal.fingerprint, proposal.by_hand, proposal.remedy.amounts) == ("1-a", 3, ("memory",))
    assert next(in_words(proposal)) == (
        "Of failures with error 1-a, a retry with more memory recovered 4 of 4, 3 of them by hand."
    )
    (broad,) = proposed(*[seen("node", exception__fingerprint="1-a") for _ in range(4)])
    assert (broad.condition, broad.fingerprint) == ('cause == "node"', "")
    assert broad.id != proposal.id
