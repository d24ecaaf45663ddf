"""The table of what is asked for names only tests that there are, and the page says what the table says."""

from __future__ import annotations

import pytest
from scripts import security_page
from tests.system.identity.table import EXPECTED, INPUTS, Row
from tests.system.named_tests import is_there


@pytest.mark.parametrize("row", [*EXPECTED, *INPUTS], ids=lambda row: row.asked[:40])
def test_what_a_row_names_is_there(row: Row) -> None:
    assert row.tests or row.missing
    for test in row.tests:
        assert is_there(f"tests/{test}"), test


def test_every_bad_input_has_its_row_and_none_is_without_a_test() -> None:
    assert len(INPUTS) == 28
    assert [row.asked for row in (*EXPECTED, *INPUTS) if row.shown == "no"] == []


def test_the_page_is_current() -> None:
    assert security_page.page() == security_page.PAGE.read_text(), "run: uv run python scripts/security_page.py"
