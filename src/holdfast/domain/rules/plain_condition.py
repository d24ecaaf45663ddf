"""Reads off a condition's text what can be said of it without evaluating it: fields that are compared with values.

Most conditions are a conjunction with such comparisons in it: `cause == "memory" && job.attempt < 3 && …`. If one of them is false, so
is the condition, whatever the rest is, even if the rest errs. If all are true and there is no rest, it is true. Anything else is for
the language itself to say. Only a text that compiles may be read so: its types are then known to fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple

from holdfast.domain.rules.context import BY_NAME, Context, Field, Kind

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_TOKEN = re.compile(r"""'[^'\\\n]*'|"[^"\\\n]*"|&&|\|\||[()\[\]{}?]|[^'"&|()\[\]{}?]+|.""", re.DOTALL)
_TEST = re.compile(
    r"""\s*(?P<name>[A-Za-z_][\w.]*)\s*(?P<sign>==|!=|<=|>=|<|>)\s*
    (?:"(?P<double>[^"\\\n]*)"|'(?P<single>[^'\\\n]*)'|(?P<int>-?(?:0|[1-9]\d{0,17}))|(?P<number>-?\d{1,15}\.\d{1,15})|(?P<word>true|false|null))\s*""",
    re.VERBOSE,
)
_IN_MAP = re.compile(r"""\s*(?:"(?P<double>[^"\\\n]*)"|'(?P<single>[^'\\\n]*)')\s+in\s+(?P<name>[A-Za-z_][\w.]*)\s*""")
_AT_KEY = re.compile(
    r"""\s*(?P<name>[A-Za-z_][\w.]*)\s*\[\s*"(?P<key>[^"\\\n]*)"\s*\]\s*==\s*"(?P<value>[^"\\\n]*)"\s*"""
)
_AMONG = re.compile(
    r"""\s*(?P<name>[A-Za-z_][\w.]*)\s+in\s+\[(?P<texts>\s*"[^"\\\n]*"\s*(?:,\s*"[^"\\\n]*"\s*)*)\]\s*"""
)
_TRUTH = re.compile(r"\s*(?P<no>!?)\s*(?P<name>[A-Za-z_][\w.]*)\s*")
_STRANGE = re.compile(r"""//|\\|`|'''|\"""|(?<!\w)[rRbB]{1,2}['"]""")
"""Comments and the rarer ways to write a text: left to the language."""
_WORDS = {"true": True, "false": False, "null": None}


class Comparison(NamedTuple):
    """A field compared with a value."""

    field: str
    sign: str
    """Beside the language's own: `has`, a map has a key; `at`, a map has a value at a key; `among`, a text is one of some."""
    value: str | int | float | bool | tuple[str, ...] | None
    holds: Callable[[Any, Any], bool | None]
    """None: only evaluating the condition tells, or that it errs."""


@dataclass(frozen=True, slots=True)
class Conjunction:
    """What is known of a condition."""

    comparisons: tuple[Comparison, ...]
    whole: bool
    """There is nothing else in the condition."""

    def answer(self, context: Context) -> bool | None:
        """Whether the condition is true; None: only evaluating it tells."""
        sure = self.whole
        for field, _, value, holds in self.comparisons:
            held = holds(context[field], value)
            if held is False:
                return False
            if held is None:
                sure = False
        return True if sure else None


NOTHING = Conjunction((), whole=False)


def conjunction_of(text: str) -> Conjunction:
    """What can be read off a text that compiles."""
    parts = _parts(text)
    if parts is None:
        return NOTHING
    read = [_comparison(part) for part in parts]
    found = tuple(one for one in read if one is not None)
    return Conjunction(found, whole=len(found) == len(read)) if found else NOTHING


def _parts(text: str) -> list[str] | None:
    """The parts that are joined by `&&` at the top; None where something binds less."""
    if _STRANGE.search(text):
        return None
    parts, depth = [""], 0
    for word in _TOKEN.findall(text):
        if word in {"(", "[", "{"}:
            depth += 1
        elif word in {")", "]", "}"}:
            depth -= 1
        elif depth == 0 and word == "&&":
            parts.append("")
            continue
        elif depth == 0 and word in {"||", "?"}:
            return None
        parts[-1] += word
    return parts


def _comparison(part: str) -> Comparison | None:
    for read in (_test, _of_map, _truth):
        found = read(part)
        if found is not None:
            return found
    return None


def _test(part: str) -> Comparison | None:
    match = _TEST.fullmatch(part)
    field = BY_NAME.get(match["name"]) if match is not None else None
    if match is None or field is None:
        return None
    value: str | int | float | bool | None
    if match["int"] is not None:
        value = int(match["int"])
    elif match["number"] is not None:
        value = float(match["number"])
    elif match["word"] is not None:
        value = _WORDS[match["word"]]
    else:
        value = match["double"] if match["double"] is not None else match["single"]
    sign = match["sign"]
    orders = sign not in {"==", "!="}
    if not _fits(field, value, orders=orders):
        return None
    return Comparison(field.name, sign, value, _ORDERS[sign] if orders and field.optional else _OPERATORS[sign])


def _of_map(part: str) -> Comparison | None:
    match = _IN_MAP.fullmatch(part)
    if match is not None and _kind(match) in {Kind.WORDS, Kind.DATA}:
        key = match["double"] if match["double"] is not None else match["single"]
        return Comparison(match["name"], "has", key, _has)
    match = _AT_KEY.fullmatch(part)
    if match is not None and _kind(match) is Kind.WORDS:
        return Comparison(match["name"], "at", (match["key"], match["value"]), _at)
    match = _AMONG.fullmatch(part)
    if match is not None and _kind(match) is Kind.TEXT:
        return Comparison(match["name"], "among", tuple(re.findall(r'"([^"]*)"', match["texts"])), _among)
    return None


def _truth(part: str) -> Comparison | None:
    match = _TRUTH.fullmatch(part)
    return (
        Comparison(match["name"], "==", not match["no"], eq)
        if match is not None and _kind(match) is Kind.TRUTH
        else None
    )


def _kind(match: re.Match[str]) -> Kind | None:
    field = BY_NAME.get(match["name"])
    return field.kind if field is not None else None


def _has(known: Any, key: Any) -> bool:
    return key in known


def _at(known: Any, place: Any) -> bool | None:
    key, value = place
    return known[key] == value if key in known else None


def _among(known: Any, values: Any) -> bool:
    return known in values


def _if_known(holds: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda known, value: None if known is None else holds(known, value)


_ORDERS = {sign: _if_known(holds) for sign, holds in _OPERATORS.items()}


def _fits(field: Field, value: object, *, orders: bool) -> bool:
    if value is None:
        return field.optional and not orders
    if isinstance(value, bool):
        return field.kind is Kind.TRUTH and not orders
    if isinstance(value, str):
        return field.kind is Kind.TEXT and not orders
    return field.kind is (Kind.INT if isinstance(value, int) else Kind.NUMBER)
