"""The fault table names only what there is: tests that can be run, campaigns with a module, and a word for what is missing."""

from __future__ import annotations

import importlib.util

import pytest
from tests.system.faults.table import CAMPAIGNS, FULL, TABLE, Row
from tests.system.named_tests import is_there


def test_every_fault_has_its_row() -> None:
    assert [row.number for row in TABLE] == list(range(1, 46))
    assert set(CAMPAIGNS) == set(FULL) == {name for row in TABLE for name in row.campaigns}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: str(row.number))
def test_what_a_row_names_is_there(row: Row) -> None:
    assert row.tests or row.campaigns or row.missing
    for test in row.tests:
        assert is_there(test), test


@pytest.mark.parametrize("sizes", [CAMPAIGNS, FULL], ids=["small", "full"])
def test_a_campaign_is_a_module(sizes: dict[str, tuple[str, ...]]) -> None:
    for words in sizes.values():
        assert importlib.util.find_spec(words[0]) is not None, words
