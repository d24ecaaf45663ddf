"""The small language: what it says, and that nothing breaks it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forestay.domain.flows.definition.expression import (
    MAX_DEPTH,
    MAX_LENGTH,
    BadExpression,
    Path,
    fill,
    holds,
    inside,
    parse_condition,
    parse_template,
    references,
    split_path,
)

WORLD: dict[str, object] = {
    "params": {"n": 5, "name": "a b", "on": True, "list": [1, "x", {"deep": 2}], "none": None, "one": 1},
    "tasks": {"align-reads": {"state": "completed"}},
}


def value(path: Path) -> object:
    return inside(WORLD, path)


@pytest.mark.parametrize(
    "text",
    [
        "params.n == 5",
        "${params.n} >= 5 and params.n < 6.5",
        "params.name == 'a b'",
        'params.name == "a b"',
        "params.on",
        "not params.none",
        "params.missing == null",
        "params.n in [1, 2 , 5]",
        "'b' in params.name",
        "'n' in params",
        "params.list[2].deep == 2",
        "params.list.1 == 'x'",
        "tasks.align-reads.state != 'failed'",
        "not (params.n > 5 or params.n < 5)",
        "not not params.on",
        "params.n == 1 or params.n == 2 or params.n == 5 and params.on",
        "params.one != true",
        "'it\\'s' == \"it's\"",
        "-1 < params.n and 1e1 > params.n",
        "true",
    ],
)
def test_what_holds(text: str) -> None:
    assert holds(text, value)


@pytest.mark.parametrize(
    "text",
    [
        "params.n", "params.name", "params.one == true", "params.n < 'x'", "params.n > 'x'", "params.none < 1",
        "params.missing > 0", "params.missing <= 0", "1 in 5", "params.n == 5 and params.none", "null", "not true", "[1] < [2]",
    ],
)  # fmt: skip
def test_what_does_not(text: str) -> None:
    assert not holds(text, value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("a ==", "ends where a value is expected"),
        ("a == b == c", "not chained"),
        ("(a", "')' is missing"),
        ("[1, 2", "is missing"),
        ("a b", "'b' is unexpected"),
        ("a + b", "'+ b' cannot be read"),
        ("len(a)", "'(' is unexpected"),
        ("__import__('os')", "is unexpected"),
        ("a = 1", "cannot be read"),
        ("and", "is not allowed where a value is expected"),
        ("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "nested more than"),
        ("a" * (MAX_LENGTH + 1), "longer than"),
    ],
)
def test_what_is_no_condition(text: str, words: str) -> None:
    with pytest.raises(BadExpression) as why:
        parse_condition(text)
    assert words in str(why.value)
    assert not holds(text, value)


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("${params.n}", 5),
        ("${ params.list }", [1, "x", {"deep": 2}]),
        ("n=${params.n}, ${params.name}", "n=5, a b"),
        ("${params.list}!", '[1,"x",{"deep":2}]!'),
        ("<${params.missing}>", "<>"),
        ("$${params.n}", "${params.n}"),
        ("$HOME $(x) {y} $1", "$HOME $(x) {y} $1"),
        ("${params.on} ", "true "),
    ],
)
def test_texts_are_filled_in(text: str, filled: object) -> None:
    assert fill(text, value) == filled


def test_references_are_found() -> None:
    assert list(references(parse_condition("a.b[0].c == 1 and not ${d} in [e, 'f']"))) == [
        ("a", "b", "0", "c"),
        ("d",),
        ("e",),
    ]
    assert split_path("a.b[0].c") == ("a", "b", "0", "c")


@given(st.text(max_size=80))
@example("not " * 400)
@example("a or " * 300 + "a")
@example("${" * 500)
def test_no_text_breaks_the_language(text: str) -> None:
    for parse in (parse_condition, parse_template):
        try:
            parse(text)
        except BadExpression as why:
            assert str(why)  # noqa: PT017 - either outcome is right
    assert holds(text, value) in (True, False)
    assert isinstance(fill(text, value), object)


@given(
    st.lists(
        st.sampled_from(["a", "b.c", "1", "'x'", "and", "or", "not", "in", "==", "<", "(", ")", "[", "]", ",", "true"]),
        max_size=12,
    )
)
def test_whatever_can_be_read_has_an_answer(words: list[str]) -> None:
    assert holds(" ".join(words), lambda path: len(path)) in (True, False)
