"""The form of a question: a small part of JSON Schema, which every page and terminal can show and which validates every answer.

An object whose properties are strings, numbers or booleans, each with a title, a default, bounds or a list of choices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean

MAX_FIELDS = 50
MAX_CHOICES = 100
MAX_TEXT = 4000
"""Characters of a text in an answer, whatever its field allows."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FORM = ("type", "properties", "required")
_ANY_FIELD = ("type", "title", "description", "default", "enum")
_BOUNDS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
_WORDS = {"string": "a text", "integer": "an integer", "number": "a number", "boolean": "true or false"}


def fields_of(form: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The fields of a form that has passed its check, in their order."""
    fields: Mapping[str, Mapping[str, Any]] = form.get("properties", {})
    return fields


def check_form(form: Mapping[str, Any], at: Place) -> Iterator[FlowProblem]:
    """All errors of a form."""
    for name in form:
        if name not in _FORM:
            yield FlowProblem((*at, name), f"a form has no {name!r}{did_you_mean(str(name), _FORM)}")
    if form.get("type", "object") != "object":
        yield FlowProblem((*at, "type"), "a form is an object; write its fields under 'properties'")
    fields = form.get("properties", {})
    if not isinstance(fields, Mapping):
        yield FlowProblem((*at, "properties"), "expected fields by name")
        return
    if len(fields) > MAX_FIELDS:
        yield FlowProblem((*at, "properties"), f"{len(fields)} fields; at most {MAX_FIELDS} are possible")
    for name, field in fields.items():
        yield from _check_field(name, field, (*at, "properties", name))
    required = form.get("required", [])
    if not isinstance(required, Sequence) or isinstance(required, str):
        yield FlowProblem((*at, "required"), "expected a list of fields")
        return
    for place, name in enumerate(required):
        if not isinstance(name, str) or name not in fields:
            yield FlowProblem(
                (*at, "required", place), f"the form has no field {name!r}{did_you_mean(str(name), fields)}"
            )


def _check_field(name: str, field: object, at: Place) -> Iterator[FlowProblem]:
    if not _NAME.fullmatch(name):
        yield FlowProblem(at, "a field's name has letters, digits, '-' and '_', and begins with a letter")
    kind = field.get("type") if isinstance(field, Mapping) else None
    if not isinstance(field, Mapping) or not isinstance(kind, str) or kind not in _BOUNDS:
        yield FlowProblem(at, f"a field has a type: one of {', '.join(_BOUNDS)}")
        return
    known = (*_ANY_FIELD, *_BOUNDS[kind])
    for key, value in field.items():
        if key not in known:
            yield FlowProblem((*at, key), f"a field of type {kind} has no {key!r}{did_you_mean(str(key), known)}")
        elif key in ("title", "description") and not isinstance(value, str):
            yield FlowProblem((*at, key), "expected a text")
        elif key in ("minLength", "maxLength") and not (_is("integer", value) and value >= 0):
            yield FlowProblem((*at, key), "expected a number of characters")
        elif key in ("minimum", "maximum") and not _is("number", value):
            yield FlowProblem((*at, key), "expected a number")
        elif key == "enum":
            yield from _check_choices(kind, value, (*at, key))
    if "default" in field and (wrong := _wrong_value(field, field["default"])):
        yield FlowProblem((*at, "default"), wrong)


def _check_choices(kind: str, choices: object, at: Place) -> Iterator[FlowProblem]:
    if not isinstance(choices, Sequence) or isinstance(choices, str) or not 0 < len(choices) <= MAX_CHOICES:
        yield FlowProblem(at, f"expected a list of 1 to {MAX_CHOICES} choices")
        return
    for place, choice in enumerate(choices):
        if not _is(kind, choice):
            yield FlowProblem((*at, place), f"expected {_WORDS[kind]}")


def completed_answer(form: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with the defaults of the fields that it leaves out."""
    defaults = {name: field["default"] for name, field in fields_of(form).items() if "default" in field}
    return defaults | dict(answer)


def answer_problems(form: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """All errors of a completed answer, each with its field."""
    fields = fields_of(form)
    problems = [
        f"{name}: the form has no such field{did_you_mean(name, fields)}" for name in answer if name not in fields
    ]
    problems += [f"{name}: it is required" for name in form.get("required", ()) if name not in answer]
    for name, field in fields.items():
        if name in answer and (wrong := _wrong_value(field, answer[name])):
            problems.append(f"{name}: {wrong}")
    return problems


def _wrong_value(field: Mapping[str, Any], value: object) -> str:
    """The error in the value of a field; empty: none."""
    kind = field["type"]
    if not _is(kind, value):
        return f"expected {_WORDS[kind]}"
    choices = field.get("enum")
    if isinstance(choices, Sequence) and value not in choices:
        return f"expected one of {', '.join(str(choice) for choice in choices)}"
    if isinstance(value, str):
        least, most = _bound(field, "minLength", 0), min(_bound(field, "maxLength", MAX_TEXT), MAX_TEXT)
        if len(value) < least:
            return f"at least {least:g} characters are needed"
        if len(value) > most:
            return f"at most {most:g} characters are possible"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < _bound(field, "minimum", value):
            return f"at least {field['minimum']}"
        if value > _bound(field, "maximum", value):
            return f"at most {field['maximum']}"
    return ""


def _bound(field: Mapping[str, Any], name: str, otherwise: float) -> float:
    """A bound of a field; one that is not a number was already reported, and is ignored."""
    bound = field.get(name)
    return float(bound) if isinstance(bound, int | float) and not isinstance(bound, bool) else otherwise


def _is(kind: str, value: Any) -> bool:
    """Whether a value is of a type of JSON Schema; a boolean is not a number."""
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < float("inf") and (kind == "number" or value == int(value))
