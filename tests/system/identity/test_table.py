"""The table of what is asked for names only tests that there are, and the page says what the table says."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from scripts import security_page
from tests.system.identity.table import EXPECTED, INPUTS, Row

TESTS = Path(__file__).parents[2]


@cache
def _tests_in(path: str) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse((TESTS / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, kinds) and node.name.startswith("test_"))


@pytest.mark.parametrize("row", [*EXPECTED, *INPUTS], ids=lambda row: row.asked[:40])
def test_what_a_row_names_is_there(row: Row) -> None:
    assert row.tests or row.missing
    for test in row.tests:
        path, _, name = test.partition("::")
        assert name in _tests_in(path), test


def test_every_bad_input_has_its_row_and_none_is_without_a_test() -> None:
    assert len(INPUTS) == 28
    assert [row.asked for row in (*EXPECTED, *INPUTS) if row.shown == "no"] == []


def test_the_page_is_current() -> None:
    assert security_page.page() == security_page.PAGE.read_text(), "run: uv run python scripts/security_page.py"
