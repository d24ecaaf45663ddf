"""Expressions that strangers' texts are matched with: in linear time, all at once or one by one."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.speed import cpu_limit

from forestay.domain.exceptions.evidence.linear_regex import ExpressionSet, compiled, problem_of

EXPRESSIONS = ("out of memory", "(?i)Killed", r"^exit \d+$", "naïve|café", "a+b", r"\bkill\b", "[0-9]{3}")


@pytest.mark.parametrize(
    "expression", ["(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P=name)", "a**", "[z-a]"]
)
def test_what_re2_does_not_know_is_said(expression: str) -> None:
    assert "it is not a valid regular expression of RE2" in problem_of(expression)


def test_a_long_expression_is_refused() -> None:
    assert problem_of("x" * 600) == ""
    assert "600" in problem_of("x" * 601)


def test_no_text_makes_an_expression_slow() -> None:
    began = time.thread_time()
    for expression in ("(a+)+$", "(?:a|aa)+$", "(?:a{1,40}b?){1,20}c"):
        assert problem_of(expression) == ""
        assert compiled(expression).search(b"a" * 20_000 + b"!") is None
    assert time.thread_time() - began < cpu_limit(1.0)


@given(
    st.text() | st.sampled_from(["Out of MEMORY", "killed", "exit 137", "un café", "aab"]).map(lambda text: f"x {text}")
)
@settings(max_examples=examples(200))
def test_all_at_once_finds_what_one_by_one_finds(text: str) -> None:
    by_itself = [
        expression for expression in sorted(EXPRESSIONS) if compiled(expression).search(text.encode("utf-8", "replace"))
    ]
    assert ExpressionSet(EXPRESSIONS).found_in(text) == by_itself


def test_half_a_surrogate_pair_is_no_error() -> None:
    assert ExpressionSet(["broken"]).found_in("\ud800 broken") == ["broken"]
    assert ExpressionSet([]).found_in("broken") == []
