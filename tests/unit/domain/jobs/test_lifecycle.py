"""The transition table: every pair of state and event, those it has and those it has not."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from forestay.domain.jobs.job_document import FINAL, WRITER, Delivery, JobDocument, State, Token
from forestay.domain.jobs.lifecycle import (
    MAX_NOTE,
    TRANSITIONS,
    Event,
    ForbiddenTransition,
    TransitionRefused,
    allowed,
    step,
)
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.steering import cancel, force, hold, let_go, retry
from forestay.domain.jobs.submission import Submission, new_job

SPECIFICATION = Specification("s1", "lab", "fit", ("true",))
PAIRS = list(product(State, Event))


def job(state: State = State.AVAILABLE, **changes: object) -> JobDocument:
    fresh = new_job(Submission(SPECIFICATION, owner="ann"), job="j1", now=1000, by="ann")
    return replace(fresh, state=state, **changes)  # type: ignore[arg-type]


@pytest.mark.ledger("P4-01")
@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda value: str(value))
def test_a_job_moves_only_along_the_table(state: State, event: Event) -> None:
    before = job(state)
    if (state, event) not in TRANSITIONS:
        assert not allowed(before, event)
        with pytest.raises(ForbiddenTransition, match="story"):
            step(before, event, now=2000, by="ann")
        return
    assert allowed(before, event)
    after = step(before, event, now=2000, by="ann", note="why")
    assert after.state is TRANSITIONS[state, event]
    assert after.rev == before.rev + 1
    assert after.history[:-1] == before.history
    line = after.history[-1]
    assert (line.rev, line.at, line.event, line.state, line.by, line.note) == (
        after.rev,
        2000,
        event.value,
        after.state.value,
        "ann",
        "why",
    )


def test_every_state_can_be_reached_and_every_open_one_left() -> None:
    reached = {State.AVAILABLE} | {to for (state, _), to in TRANSITIONS.items() if state is not to}
    left = {state for (state, _), to in TRANSITIONS.items() if state is not to}
    assert reached == set(State)
    assert left == set(State) - FINAL


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_final_state_is_never_left(state: State) -> None:
    assert {to for (before, _), to in TRANSITIONS.items() if before is state} <= {state}


@pytest.mark.parametrize(("state", "event"), sorted(TRANSITIONS))
def test_a_document_of_a_newer_writer_is_left_alone(state: State, event: Event) -> None:
    newer = job(state, min_writer=WRITER + 1)
    assert not allowed(newer, event)
    with pytest.raises(ForbiddenTransition):
        step(newer, event, now=2000, by="ann")


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("holders", [(), ("bob",)])
def test_a_verb_that_does_not_fit_is_refused_and_never_raises(state: State, holders: tuple[str, ...]) -> None:
    before = job(state, holders=holders)
    verbs = {
        Event.CANCEL: cancel(before, now=2, by="ann"),
        Event.HOLD: hold(before, holder="eve", now=2, by="eve"),
        Event.CONTINUE: let_go(before, holder="bob", now=2, by="bob"),
        Event.RETRY: retry(before, now=2, by="ann"),
        Event.FORCE_COMPLETE: force(
            before, to=State.FORCED_COMPLETE, expected=before.token, now=2, by="ann", reason="seen"
        ),
        Event.FORCE_FAIL: force(before, to=State.FAILED, expected=before.token, now=2, by="ann", reason="seen"),
    }
    for event, after in verbs.items():
        possible = (state, event) in TRANSITIONS and (event is not Event.CONTINUE or bool(holders))
        assert isinstance(after, JobDocument) == possible, event


def test_force_is_refused_when_the_job_moved_on() -> None:
    before = job(State.RUNNING, attempt=2)
    after = force(before, to=State.FAILED, expected=Token(0, 1), now=2, by="ann", reason="seen")
    assert isinstance(after, TransitionRefused)
    assert "attempt 2" in after.reason


def test_the_notification_is_due_when_the_job_becomes_final_and_only_then() -> None:
    asked = job(delivery=Delivery("https://example.org/done"))
    running = step(asked, Event.CLAIM, now=2000, by="p1")
    assert running.delivery is not None
    assert running.delivery.due is None
    ended = step(running, Event.COMPLETE, now=3000, by="p1")
    assert ended.delivery is not None
    assert ended.delivery.due == 3000


def test_a_long_note_is_cut() -> None:
    after = step(job(), Event.HOLD, now=2, by="ann", note="x" * 1000)
    assert len(after.history[-1].note) == MAX_NOTE


def test_a_submission_may_name_its_own_resources_and_be_held() -> None:
    asked = Submission(SPECIFICATION, owner="ann", resources=Resources(cpus=8), held=True)
    made = new_job(asked, job="j2", now=1, by="ann")
    assert made.resources.cpus == 8
    assert made.holders == ("ann",)
