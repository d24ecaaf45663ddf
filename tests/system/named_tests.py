"""The tests that a table names: whether they are there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def is_there(test: str) -> bool:
    """`tests/…/file.py::name`."""
    path, _, name = test.partition("::")
    return name in _tests_in(path)


@cache
def _tests_in(path: str) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, kinds) and node.name.startswith("test_"))
