"""Canaries: 1, then 10, then all, never a step too far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.safeguards.canary import (
    STEPS,
    WATCHED,
    Canary,
    NotYet,
    forget,
    let_all,
    let_through,
    outcome,
    try_again,
)


def grown(well: int, bad: int = 0) -> Canary:
    """A canary after so many outcomes, each act let through before its outcome."""
    canary = Canary()
    for number in range(well + bad):
        let = let_through(canary, f"j{number}")
        assert isinstance(let, Canary)
        canary = outcome(let, f"j{number}", well=number < well)
    return canary


def test_one_then_ten_then_all() -> None:
    canary = let_through(Canary(), "a")
    assert isinstance(canary, Canary)
    assert let_through(canary, "a") == canary, "the same act again"
    assert let_through(canary, "b") == NotYet("1 is being tried first; 1 not finished yet", held=False)
    canary = outcome(canary, "a", well=True)
    for number in range(10):
        let = let_through(canary, f"c{number}")
        assert isinstance(let, Canary)
        canary = let
    assert isinstance(let_through(canary, "c10"), NotYet)
    for number in range(10):
        assert not canary.open_to_all
        canary = outcome(canary, f"c{number}", well=number > 1)
    assert canary.open_to_all
    for number in range(WATCHED):
        watched = let_through(canary, f"d{number}")
        assert isinstance(watched, Canary)
        canary = watched
    assert len(canary.pending) == WATCHED
    assert let_through(canary, "anyone") == canary, "the others cost no write"
    assert outcome(canary, "d0", well=True).pending == canary.pending[1:]


def test_a_first_that_fails_holds_the_group() -> None:
    canary = grown(0, 1)
    assert canary.held
    answer = let_through(canary, "b")
    assert isinstance(answer, NotYet)
    assert answer.held
    assert answer.words == "1 of 1 retries failed; a person must decide"
    assert outcome(canary, "b", well=True) == canary


def test_three_of_ten_that_fail_hold_the_group_before_the_others_are_over() -> None:
    canary = grown(1)
    for number in range(10):
        let = let_through(canary, f"c{number}")
        assert isinstance(let, Canary)
        canary = let
    for number in range(3):
        assert not canary.held
        canary = outcome(canary, f"c{number}", well=False)
    assert canary.held


def test_what_harms_after_all_were_let_through_is_stopped() -> None:
    canary = grown(11)
    assert canary.open_to_all
    for number in range(9):
        canary = outcome(canary, f"d{number}", well=False)
    assert not canary.held, "too few to judge"
    assert outcome(canary, "d9", well=False).held


def test_an_act_without_outcome_makes_room_for_another() -> None:
    canary = let_through(Canary(), "a")
    assert isinstance(canary, Canary)
    assert isinstance(let_through(forget(canary, "a"), "b"), Canary)


def test_a_person_tries_again_or_lets_all_through() -> None:
    held = grown(0, 1)
    assert try_again(held) == Canary(let=1)
    assert let_all(held).open_to_all


@given(
    st.lists(st.tuples(st.sampled_from(["let", "let", "end", "forget", "store"]), st.integers(0, 40), st.booleans()))
)
def test_it_never_jumps(steps: list[tuple[str, int, bool]]) -> None:
    canary = Canary()
    out: set[str] = set()
    ended = {0: 0, 1: 0}
    for what, number, well in steps:
        act, before = f"j{number}", canary
        if what == "let":
            answer = let_through(canary, act)
            if isinstance(answer, Canary):
                canary = answer
                out.add(act)
        elif what == "end" and act in out:
            canary = outcome(canary, act, well=well)
            if before.step in ended:
                ended[before.step] += 1
            out.discard(act)
        elif what == "forget":
            canary = forget(canary, act)
            out.discard(act)
        elif what == "store":
            canary = Canary.from_plain(canary.as_plain())
        assert canary.step - before.step in (0, 1)
        if canary.step > before.step:
            assert before.step >= len(STEPS) or ended[before.step] >= STEPS[before.step]
        if canary.step < len(STEPS):
            assert len(canary.pending) + canary.well + canary.bad <= STEPS[canary.step]
            assert canary.let <= 1 + 10 + sum(1 for step in steps if step[0] == "forget")
        if before.held:
            assert canary.held
