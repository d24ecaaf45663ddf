"""Which work of a host's slots comes after others, and which is kept away from it."""

from __future__ import annotations

import pytest

from forestay.domain.scheduling.host_health import (
    FailingWork,
    HealthPolicy,
    SlotTurn,
    explained_work,
    slot_turn,
    work_keys,
)

pytestmark = pytest.mark.finding("F-B3")
POLICY = HealthPolicy()
SPEC, OWNER = work_keys("eve", "s1")


def _works(*specifications: str) -> dict[str, FailingWork]:
    works: dict[str, FailingWork] = {}
    for specification in specifications:
        for key in work_keys("eve", specification):
            works.setdefault(key, FailingWork()).note(specification, 0)
    return works


def test_a_specification_that_fails_is_judged_alone() -> None:
    works = _works(*["s1"] * 5)
    assert slot_turn(works, work_keys("eve", "s1"), (), 1, POLICY) is SlotTurn.NOT_HERE
    assert slot_turn(works, work_keys("eve", "s1"), {SPEC}, 1, POLICY) is SlotTurn.AFTER_OTHERS
    assert slot_turn(works, work_keys("eve", "s2"), {SPEC}, 1, POLICY) is SlotTurn.NOW
    assert slot_turn(works, work_keys("bob", "s3"), (), 1, POLICY) is SlotTurn.NOW


def test_an_owner_is_judged_by_different_specifications() -> None:
    works = _works("s1", "s2", "s3", "s4", "s5")
    assert slot_turn(works, work_keys("eve", "s9"), {OWNER}, 1, POLICY) is SlotTurn.AFTER_OTHERS
    assert slot_turn(works, work_keys("bob", "s9"), {OWNER}, 1, POLICY) is SlotTurn.NOW


def test_it_is_tried_now_and_then() -> None:
    works = _works(*["s1"] * 5)
    assert slot_turn(works, work_keys("eve", "s1"), (), 1000 * POLICY.doubt, POLICY) is SlotTurn.NOW


def test_it_is_said() -> None:
    sentence = explained_work(_works(*["s1"] * 5), {SPEC}, POLICY)
    assert sentence == "specification s1: 5 fast failures, only when no other job waits, and one every 10 s"
    assert explained_work(_works("s1"), (), POLICY) == ""
