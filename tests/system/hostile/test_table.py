"""The table of the hostile campaign names only tests that there are, and its page is of this table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.system.hostile.__main__ import PAGE, kept, page
from tests.system.hostile.table import TRIES, Try

ROOT = Path(__file__).parents[3]
EVERY = [trial for group in TRIES.values() for trial in group]


@pytest.mark.parametrize("trial", EVERY, ids=lambda trial: trial.what)
def test_what_a_try_names_is_there(trial: Try) -> None:
    for test in trial.tests:
        path, _, name = test.partition("::")
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        assert name in {
            node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, functions)
        }, test


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(kept()), "run `just hostile --page`"
