"""YAML is read as JSON with positions, and a small text cannot become a large value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.formats.text.yaml_text import MAX_BYTES, MAX_DEPTH, Position, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", {"a": "no"}),
        ("a: on", {"a": "on"}),
        ("a: 1:30", {"a": "1:30"}),
        ("a: 2026-01-31", {"a": "2026-01-31"}),
        ("a: 0x10", {"a": "0x10"}),
        (
            "a: [1, -2.5, .5, 1e3, '1', null, ~, true, False]",
            {"a": [1, -2.5, 0.5, 1000.0, "1", None, None, True, False]},
        ),
        ("a: !!str 5", {"a": "5"}),
        ("a: &x [1]\nb: *x", {"a": [1], "b": [1]}),
        ("a: |\n  one\n  two\n", {"a": "one\ntwo\n"}),
        ('{"a": {"b": [1]}}', {"a": {"b": [1]}}),
    ],
)
def test_what_is_read(text: str, value: object) -> None:
    document = read_yaml(text)
    assert document.findings == []
    assert document.value == value


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, 1, "'a' occurs twice; first in line 1"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a: !!python/object/apply:os.system ['x']", 1, 4, "tags such as"),
        ("a: !x 1", 1, 4, "tags such as"),
        ("1: a", 1, 1, "a key must be a text"),
        ("[1]: a", 1, 1, "a key must be a text"),
        ("a: *x", 1, 4, "nothing before this is marked &x"),
        ("a: &x [*x]", 1, 8, "nothing before this is marked &x"),
        ("a: [1, 2\nb: 3", 2, 2, "Invalid YAML"),
        ("\ta: 1", 1, 1, "Invalid YAML"),
        ("a: \x00", 1, 1, "Invalid YAML"),
        ("", 1, 1, "it is empty"),
        ("a: &d {x: 1}\nb:\n  <<: *d", 3, 3, "'<<' is not supported"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 1, "nested more than"),
        (LAUGHS, 6, 8, "more than 100000 values"),
        ("x" * (MAX_BYTES + 1), 1, 1, "larger than"),
    ],
)
def test_what_is_refused(text: str, line: int, column: int, words: str) -> None:
    document = read_yaml(text)
    (finding,) = document.findings
    assert words in finding.message
    assert document.position(finding.path) == Position(line, column)
    assert document.value is None


def test_aliases_do_not_nest_past_the_depth() -> None:
    lines = ["a0: &a0 " + "[" * 30 + "]" * 30]
    lines += [f"a{n}: &a{n} " + "[" * 30 + f"*a{n - 1}" + "]" * 30 for n in range(1, 5)]
    (finding,) = read_yaml("\n".join(lines)).findings
    assert "nested more than" in finding.message


def test_every_value_has_a_position() -> None:
    document = read_yaml("tasks:\n  a:\n    command: [echo,\n      x]\n")
    assert document.position(("tasks", "a", "command")) == Position(3, 5)
    assert document.position(("tasks", "a", "command", 1)) == Position(4, 7)
    assert document.position(("tasks", "a", "when")) == Position(2, 3)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    document = read_yaml(text)
    assert (document.value is None) or not document.findings
