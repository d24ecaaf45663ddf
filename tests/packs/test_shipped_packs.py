"""Every pattern that comes with Holdfast is tried on its own fixtures, beside all others."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.formats.pack_folder import shipped_packs
from holdfast.formats.pack_yaml import PackPattern, failed_fixtures

PACKS = shipped_packs()
CLASSIFIER = PACKS.classifier()


def test_nothing_is_wrong_with_any_pack() -> None:
    assert [f"{file}:{problem}" for file, problem in PACKS.problems] == []


def test_every_name_stands_once() -> None:
    names = Counter(one.pattern.name for one in PACKS.patterns)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("one", PACKS.patterns, ids=lambda one: one.pattern.name)
def test_a_pattern_on_its_fixtures(one: PackPattern) -> None:
    assert one.fixtures.matches
    assert one.fixtures.passes
    assert failed_fixtures(one, CLASSIFIER) == []
