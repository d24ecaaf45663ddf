"""Which work of a host's slots comes after others, and which is kept away from it."""

from __future__ import annotations

import pytest

from forestay.domain.scheduling.failing_work import FailingWork, SlotTurn, explained_work, keys, turn
from forestay.domain.scheduling.host_health import HealthPolicy

pytestmark = pytest.mark.finding("F-B3")
POLICY = HealthPolicy()
SPEC, OWNER = keys("eve", "s1")


def _works(*specifications: str) -> dict[str, FailingWork]:
    works: dict[str, FailingWork] = {}
    for specification in specifications:
        for key in keys("eve", specification):
            works.setdefault(key, FailingWork()).note(specification, 0)
    return works


def test_a_specification_that_fails_is_judged_alone() -> None:
    works = _works(*["s1"] * 5)
    assert turn(works, keys("eve", "s1"), (), 1, POLICY) is SlotTurn.NOT_HERE
    assert turn(works, keys("eve", "s1"), {SPEC}, 1, POLICY) is SlotTurn.AFTER_OTHERS
    assert turn(works, keys("eve", "s2"), {SPEC}, 1, POLICY) is SlotTurn.NOW
    assert turn(works, keys("bob", "s3"), (), 1, POLICY) is SlotTurn.NOW


def test_an_owner_is_judged_by_different_specifications() -> None:
    works = _works("s1", "s2", "s3", "s4", "s5")
    assert turn(works, keys("eve", "s9"), {OWNER}, 1, POLICY) is SlotTurn.AFTER_OTHERS
    assert turn(works, keys("bob", "s9"), {OWNER}, 1, POLICY) is SlotTurn.NOW


def test_it_is_tried_now_and_then() -> None:
    works = _works(*["s1"] * 5)
    assert turn(works, keys("eve", "s1"), (), 1000 * POLICY.doubt, POLICY) is SlotTurn.NOW


def test_it_is_said() -> None:
    sentence = explained_work(_works(*["s1"] * 5), {SPEC}, POLICY)
    assert sentence == "specification s1: 5 fast failures, only when no other job waits, and one every 10 s"
    assert explained_work(_works("s1"), (), POLICY) == ""
