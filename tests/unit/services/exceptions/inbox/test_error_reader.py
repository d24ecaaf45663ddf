"""What the failures of an error have in common that other failures have not."""

from __future__ import annotations

from forestay.services.exceptions.inbox.error_reader import CommonTag, stands_out


def test_a_host_that_all_share_and_others_do_not_stands_out() -> None:
    common = stands_out("host", {"n17": 10}, {"n17": 12, "n1": 30, "n2": 8})
    assert common == CommonTag("host", "n17", 1.0, 2 / 40)


def test_a_host_on_which_everything_fails_does_not() -> None:
    assert stands_out("host", {"n17": 10}, {"n17": 40}) is None


def test_neither_what_is_spread_nor_what_nobody_knows() -> None:
    assert stands_out("host", {"n1": 5, "n2": 5}, {"n1": 5, "n2": 5, "n3": 20}) is None
    assert stands_out("host", {"": 10}, {"": 10, "n3": 20}) is None


def test_too_little_to_say_anything() -> None:
    assert stands_out("host", {"n1": 2}, {"n1": 2, "n2": 50}) is None
    assert stands_out("host", {"n1": 50}, {"n1": 50, "n2": 2}) is None
