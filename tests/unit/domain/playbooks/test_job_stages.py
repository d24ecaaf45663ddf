"""The state diagrams of paper P0, as its section 4 tells them, against Forestay's own table."""

from __future__ import annotations

from itertools import product

import pytest

from forestay.domain.jobs.job_document import FINAL, State
from forestay.domain.jobs.lifecycle import TRANSITIONS, Event
from forestay.domain.playbooks.action import ActionKind
from forestay.domain.playbooks.job_stages import NORMAL, PATTERNS, JobStage, why_not

pytestmark = pytest.mark.ledger("P0-20")

S = JobStage


def test_figure_3() -> None:
    assert NORMAL[S.STAGING] == {S.SUBMISSION, S.FAILED}, "a failure of staging leads to Failed"
    assert NORMAL[S.SUBMISSION] == {S.POLLING, S.NOTIFICATION, S.FAILED}, "polling or notification follows"
    assert S.COMPLETED in NORMAL[S.POLLING] & NORMAL[S.NOTIFICATION]
    assert all(S.FAILED in NORMAL[stage] for stage in JobStage if stage not in (S.COMPLETED, S.FAILED))


def test_figures_4_to_7() -> None:
    assert PATTERNS[ActionKind.RESTAGE].after == {S.STAGING, S.POLLING, S.NOTIFICATION}
    assert PATTERNS[ActionKind.RESUBMIT].then == {S.STAGING, S.POLLING, S.NOTIFICATION, S.FAILED}
    for action in (ActionKind.REPOLL, ActionKind.REREGISTER):
        assert PATTERNS[action].then == {S.STAGING, S.SUBMISSION, S.COMPLETED, S.FAILED}
    assert PATTERNS[ActionKind.FORCE_FAIL].brings is S.FAILED
    assert PATTERNS[ActionKind.FORCE_COMPLETE].brings is S.COMPLETED


def test_every_other_pair_is_refused() -> None:
    allowed = {pair for pair in product(PATTERNS, PATTERNS) if not why_not(pair[1], pair[0])}
    assert allowed == {
        (before, after)
        for before, after in product(PATTERNS, PATTERNS)
        if PATTERNS[after].brings in PATTERNS[before].then
    }
    assert (ActionKind.RESUBMIT, ActionKind.REPOLL) in allowed
    assert (ActionKind.REPOLL, ActionKind.REREGISTER) not in allowed
    assert not any(before in (ActionKind.FORCE_FAIL, ActionKind.FORCE_COMPLETE) for before, _ in allowed)


def test_forestays_own_table_allows_no_more() -> None:
    """Only a faulted job is submitted again, only one that has not ended is forced, and nothing follows an end."""
    assert {state for state, event in TRANSITIONS if event is Event.RETRY} == {State.FAULTED}
    for event, end in ((Event.FORCE_FAIL, State.FAILED), (Event.FORCE_COMPLETE, State.FORCED_COMPLETE)):
        states = {state: after for (state, other_event), after in TRANSITIONS.items() if other_event is event}
        assert set(states) == set(State) - FINAL
        assert set(states.values()) == {end}
    assert {event for state, event in TRANSITIONS if state in FINAL} == {Event.NOTIFY, Event.REMAKE}
    assert all(after is state for (state, _), after in TRANSITIONS.items() if state in FINAL)
