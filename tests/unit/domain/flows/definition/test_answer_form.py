"""The form of a question: what may be written, and which answers fit it."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.domain.flows.definition.answer_form import MAX_TEXT, answer_problems, check_form, completed_answer

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "good": {"type": "boolean", "title": "Good?"},
        "share": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
        "rounds": {"type": "integer", "minimum": 1},
        "why": {"type": "string", "maxLength": 5, "minLength": 2},
        "method": {"type": "string", "enum": ["fast", "exact"]},
    },
    "required": ["good"],
}


@pytest.mark.parametrize(
    ("form", "path", "words"),
    [
        ({"kind": "object"}, "kind", "no 'kind'"),
        ({"type": "array"}, "type", "is an object"),
        ({"properties": []}, "properties", "fields by name"),
        ({"properties": {f"f{n}": {"type": "string"} for n in range(51)}}, "properties", "at most 50"),
        ({"properties": {"a b": {"type": "string"}}}, "properties.a b", "name has letters"),
        ({"properties": {"a": {"type": "object"}}}, "properties.a", "has a type"),
        ({"properties": {"a": "string"}}, "properties.a", "has a type"),
        ({"properties": {"a": {"type": "boolean", "minimum": 1}}}, "properties.a.minimum", "has no 'minimum'"),
        ({"properties": {"a": {"type": "string", "title": 3}}}, "properties.a.title", "expected a text"),
        ({"properties": {"a": {"type": "string", "maxLength": -1}}}, "properties.a.maxLength", "number of characters"),
        ({"properties": {"a": {"type": "number", "maximum": True}}}, "properties.a.maximum", "expected a number"),
        ({"properties": {"a": {"type": "number", "enum": []}}}, "properties.a.enum", "choices"),
        ({"properties": {"a": {"type": "number", "enum": ["b"]}}}, "properties.a.enum[0]", "expected a number"),
        ({"properties": {"a": {"type": "integer", "default": 1.5}}}, "properties.a.default", "expected an integer"),
        ({"required": "a"}, "required", "list of fields"),
        ({"properties": {"name": {"type": "string"}}, "required": ["nam"]}, "required[0]", "did you mean 'name'"),
    ],
)
def test_a_form_that_cannot_be_shown_is_refused_with_its_place(form: dict[str, Any], path: str, words: str) -> None:
    (problem,) = check_form(form, ())
    assert problem.where == path
    assert words in problem.message


def test_a_form_and_a_form_without_fields_are_fine() -> None:
    assert not list(check_form(FORM, ()))
    assert not list(check_form({}, ()))
    assert answer_problems({}, {}) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "good: it is required"),
        ({"good": 1}, "good: expected true or false"),
        ({"good": True, "share": 1.1}, "share: at most 1"),
        ({"good": True, "share": -0.1}, "share: at least 0"),
        ({"good": True, "share": True}, "share: expected a number"),
        ({"good": True, "share": float("nan")}, "share: expected a number"),
        ({"good": True, "rounds": 1.5}, "rounds: expected an integer"),
        ({"good": True, "why": "x"}, "why: at least 2 characters"),
        ({"good": True, "why": "too long"}, "why: at most 5 characters"),
        ({"good": True, "method": "slow"}, "method: expected one of fast, exact"),
        ({"good": True, "god": 1}, "god: the form has no such field; did you mean 'good'?"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_its_field(answer: dict[str, Any], words: str) -> None:
    (problem,) = answer_problems(FORM, answer)
    assert problem.startswith(words)


def test_defaults_are_filled_in_and_no_text_is_endless() -> None:
    answer = completed_answer(FORM, {"good": True})
    assert answer == {"good": True, "share": 0.5}
    assert answer_problems(FORM, answer) == []
    endless = {"properties": {"text": {"type": "string", "maxLength": 10 * MAX_TEXT}}}
    assert answer_problems(endless, {"text": "x" * (MAX_TEXT + 1)}) == [
        f"text: at most {MAX_TEXT} characters are possible"
    ]
