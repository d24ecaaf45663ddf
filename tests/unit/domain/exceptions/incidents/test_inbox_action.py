"""One, then ten, then all: the next step only after the last went well, and only for the same remedy on the same group."""

from __future__ import annotations

import pytest

from forestay.domain.exceptions.incidents.inbox_action import (
    InboxOutcome,
    InboxRemedy,
    InboxTarget,
    Reach,
    TriedAction,
    why_not_yet,
)

RETRY = InboxTarget("memory", "ada", InboxRemedy.RETRY)
WELL, BAD, PENDING = InboxOutcome.WELL, InboxOutcome.BAD, InboxOutcome.PENDING


def tried(reach: Reach, *fates: InboxOutcome, target: InboxTarget = RETRY) -> TriedAction:
    return TriedAction(target, reach, fates, whole=False)


def test_one_may_always_be_tried() -> None:
    assert why_not_yet(RETRY, Reach.ONE, None) is None
    assert why_not_yet(RETRY, Reach.ONE, tried(Reach.ONE, BAD)) is None


@pytest.mark.parametrize(
    ("reach", "before", "words"),
    [
        (Reach.TEN, None, "apply it to one first"),
        (Reach.ALL, None, "apply it to ten first"),
        (Reach.ALL, tried(Reach.ONE, WELL), "apply it to ten next"),
        (Reach.TEN, tried(Reach.ONE, PENDING), "1 of 1 have not finished"),
        (Reach.TEN, tried(Reach.ONE, BAD), "did not help 1 of 1"),
        (Reach.ALL, tried(Reach.TEN, WELL, WELL, BAD, PENDING), "did not help 1 of 4"),
        (
            Reach.TEN,
            tried(Reach.ONE, WELL, target=InboxTarget("memory", "bob", InboxRemedy.RETRY)),
            "apply it to one first",
        ),
        (
            Reach.TEN,
            tried(Reach.ONE, WELL, target=InboxTarget("memory", "ada", InboxRemedy.RETRY, fingerprint="1-a")),
            "apply it to one first",
        ),
        (
            Reach.TEN,
            tried(Reach.ONE, WELL, target=InboxTarget("memory", "ada", InboxRemedy.CANCEL)),
            "apply it to one first",
        ),
        (Reach.TEN, tried(Reach.ONE), "nothing was tried"),
    ],
)
def test_what_is_refused(reach: Reach, before: TriedAction | None, words: str) -> None:
    assert words in (why_not_yet(RETRY, reach, before) or "")


@pytest.mark.parametrize(
    ("reach", "before"),
    [
        (Reach.TEN, tried(Reach.ONE, WELL)),
        (Reach.ALL, tried(Reach.TEN, *[WELL] * 10)),
        (Reach.ALL, tried(Reach.ALL, *[WELL] * 500)),
    ],
)
def test_what_is_allowed(reach: Reach, before: TriedAction) -> None:
    assert why_not_yet(RETRY, reach, before) is None
