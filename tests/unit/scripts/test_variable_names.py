"""Variables say what they hold: names such as ``one`` and ``item`` stay rare."""

from __future__ import annotations

import ast

import pytest
from scripts.variable_names import MOST, bindings, empty_names


@pytest.mark.long
def test_names_that_say_nothing_stay_rare() -> None:
    places = empty_names()
    assert len(places) <= MOST, "\n".join(f"{place} {name}" for place, name in places)


def test_every_kind_of_binding_is_counted() -> None:
    source = """
import json as a
def f(b, *c, d=lambda e: e, **g):
    h: int = 1
    for i, (j, *k) in [(l := m) for n in o]:
        with p() as q:
            r += 1
    try:
        pass
    except ValueError as s:
        pass
    match t:
        case [u, *v] | {"w": y, **z}:
            pass
"""
    assert sorted(name for name, _ in bindings(ast.parse(source))) == list("abcdeghijklnqrsuvyz")
