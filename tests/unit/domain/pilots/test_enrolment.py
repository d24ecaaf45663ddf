"""A secret lets one pilot in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forestay.domain.pilots.enrolment import (
    REPEAT,
    Enrolment,
    EnrolmentCandidate,
    ForAnother,
    NotGood,
    digest,
    redeem,
    status,
)

FRESH = Enrolment("alpha", "cluster", "l-1", "agent", expires=1000)
PILOT = EnrolmentCandidate("p-1", "number-of-the-first", "cluster", "l-1")


def used() -> Enrolment:
    after = redeem(FRESH, PILOT, now=999)
    assert isinstance(after, Enrolment)
    return after


def test_the_first_pilot_is_let_in_and_its_number_is_not_kept() -> None:
    assert used() == replace(FRESH, pilot="p-1", nonce=digest(PILOT.nonce), used=999)
    assert PILOT.nonce not in str(used().as_plain())


def test_the_same_pilot_may_ask_again_for_a_while_and_keeps_its_name() -> None:
    again = replace(PILOT, pilot="p-2")
    assert redeem(used(), again, now=999 + REPEAT - 1) == used()
    assert redeem(used(), again, now=999 + REPEAT) == NotGood()


def test_nobody_else_can_use_it() -> None:
    assert redeem(used(), replace(PILOT, nonce="number-of-another"), now=999) == NotGood()
    assert status(used(), site="cluster", launch="l-1", now=999) == NotGood()


def test_it_expires() -> None:
    assert redeem(FRESH, PILOT, now=1000) == NotGood()


@pytest.mark.parametrize("change", [{"site": "elsewhere"}, {"launch": "l-2"}, {"launch": ""}])
def test_it_is_bound_to_site_and_launch(change: dict[str, str]) -> None:
    assert isinstance(redeem(FRESH, replace(PILOT, **change), now=1), ForAnother)


def test_one_made_by_hand_is_for_any_launch_and_a_silent_pilot_is_of_its_site() -> None:
    by_hand = replace(FRESH, launch="")
    assert isinstance(redeem(by_hand, replace(PILOT, launch="l-7", site=""), now=1), Enrolment)


def test_it_is_read_back_as_it_was_written() -> None:
    assert Enrolment.from_plain("alpha", used().as_plain()) == used()
