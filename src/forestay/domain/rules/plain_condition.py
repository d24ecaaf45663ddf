"""Which values of context fields a condition requires, for the index of rules.

Most conditions are a conjunction that contains comparisons: `cause == "memory" && job.attempt < 3 && …`. If one of them is false, CEL
evaluates the whole to false, even if the rest fails with an error. Therefore an index may leave such a rule out. Nothing
is evaluated here: a condition that may be true is always evaluated by CEL.

Only a text that compiles may be read: its types are then known to match. Whatever is not certainly a comparison is skipped, which
costs an evaluation and never changes a decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.rules.context import BY_NAME, FieldType


class FieldComparison(NamedTuple):
    """A field compared with a value."""

    field: str
    sign: str
    """CEL's own operators, and `has`: a map has a key; `among`: the value is in a list."""
    value: str | int | float | bool | tuple[str | int, ...] | None


@dataclass(frozen=True, slots=True)
class Conjunction:
    """What a condition requires: if one of the comparisons is false, so is the condition."""

    comparisons: tuple[FieldComparison, ...]


NOTHING = Conjunction(())

# Escapes, raw and triple-quoted strings, comments and quoted names match no token: a text with one of them is not read.
_TOKEN = re.compile(
    r"""(?:"[^"\\\n]*"(?!")|'[^'\\\n]*'(?!')|[A-Za-z_]\w*(?!["'\w])|\d+(?!\w)|&&|\|\||/(?!/)|[^"'`\\/&|\w])""", re.ASCII
)
_TEXT = r""""[^"]*"|'[^']*'"""
_LITERAL = rf"{_TEXT}|-?\d{{1,15}}\.\d{{1,15}}|-?(?:0|[1-9]\d{{0,17}})|true|false|null"
_FIELD = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_SIGN = "==|!=|<=|>=|<|>"
_COMPARISON = re.compile(
    rf"""(?:(?P<field>{_FIELD})\s*(?P<sign>{_SIGN})\s*(?P<value>{_LITERAL})
    |(?P<first>{_LITERAL})\s*(?P<mirrored>{_SIGN})\s*(?P<second>{_FIELD})
    |(?P<one>{_FIELD})\s+in\s*\[(?P<many>\s*(?:{_LITERAL})\s*(?:,\s*(?:{_LITERAL})\s*)*)\]
    |(?P<key>{_TEXT})\s*in\s+(?P<map>{_FIELD})
    |has\s*\(\s*(?P<parent>{_FIELD})\.(?P<member>[A-Za-z_]\w*)\s*\)
    |(?P<no>!?)\s*(?P<truth>{_FIELD}))""",
    re.VERBOSE | re.ASCII,
)
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def conjunction_of(text: str) -> Conjunction:
    """The comparisons that a text that compiles requires, as far as recognised."""
    comparisons = (_comparison(part.strip()) for part in _conjuncts(text))
    return Conjunction(tuple(comparison for comparison in comparisons if comparison is not None))


def whole_condition(text: str) -> tuple[FieldComparison, ...] | None:
    """The comparisons of which a condition consists, for evaluation without CEL; None if it contains anything else."""
    comparisons = [_comparison(part.strip()) for part in _conjuncts(text)]
    if not comparisons:
        return None
    known = tuple(comparison for comparison in comparisons if comparison is not None)
    return known if len(known) == len(comparisons) else None


def fields_named(text: str) -> list[str]:
    """The fields that a text that compiles may name: never too few, perhaps too many."""
    if "//" in text or "`" in text:
        return list(BY_NAME)
    bare = "".join(text.split())
    return [name for name in BY_NAME if name in bare]


def _conjuncts(text: str) -> list[str]:
    """The parts that `&&` joins outside of all brackets; none if the text is not certainly a conjunction."""
    parts, start, at, depth = list[str](), 0, 0, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return []
        at, lexeme = match.end(), match[0]
        depth += (lexeme in "([{") - (lexeme in ")]}")
        if depth == 0 and lexeme in {"||", "?"}:
            return []
        if depth == 0 and lexeme == "&&":
            parts.append(text[start : match.start()])
            start = at
    return [*parts, text[start:]]


def _comparison(part: str) -> FieldComparison | None:
    match = _COMPARISON.fullmatch(part)
    if match is None:
        return None
    if match["field"]:
        return _compared(match["field"], match["sign"], match["value"])
    if match["second"]:
        return _compared(match["second"], _MIRRORED[match["mirrored"]], match["first"])
    if match["one"]:
        return _among(match["one"], re.findall(_LITERAL, match["many"]))
    if match["key"]:
        return _has(match["map"], match["key"][1:-1])
    if match["member"]:
        return _has(match["parent"], match["member"])
    field = BY_NAME.get(match["truth"])
    return FieldComparison(field.name, "==", not match["no"]) if field and field.kind is FieldType.TRUTH else None


def _compared(name: str, sign: str, literal: str) -> FieldComparison | None:
    field = BY_NAME.get(name)
    kind, value = _read(literal)
    orders = sign not in {"==", "!="}
    if field is None or (field.kind is not kind if kind is not None else orders or not field.optional):
        return None
    # Python and CEL may order texts differently.
    return None if orders and kind in {FieldType.TEXT, FieldType.TRUTH} else FieldComparison(name, sign, value)


def _among(name: str, literals: list[str]) -> FieldComparison | None:
    field = BY_NAME.get(name)
    if field is None or field.kind not in {FieldType.TEXT, FieldType.INT}:
        return None
    values = tuple(value for kind, value in map(_read, literals) if kind is field.kind and isinstance(value, str | int))
    return FieldComparison(name, "among", values) if len(values) == len(literals) else None


def _has(name: str, key: str) -> FieldComparison | None:
    field = BY_NAME.get(name)
    return (
        FieldComparison(name, "has", key)
        if field is not None and field.kind in {FieldType.WORDS, FieldType.DATA}
        else None
    )


def _read(literal: str) -> tuple[FieldType | None, str | int | float | bool | None]:
    """The type and the value of a literal; null has no type of its own."""
    if literal[0] in "\"'":
        return FieldType.TEXT, literal[1:-1]
    if literal == "null":
        return None, None
    if literal in {"true", "false"}:
        return FieldType.TRUTH, literal == "true"
    return (FieldType.NUMBER, float(literal)) if "." in literal else (FieldType.INT, int(literal))
