"""The functions and operators of XPath 1.0."""

from __future__ import annotations

import math
from collections.abc import Callable

from forestay.domain.flows.bpel.xpath_values import Attribute, Value, XPathFailed, boolean, number, string
from forestay.domain.flows.xml_tree import XmlElement


def _divide(one: float, other: float) -> float:
    if other == 0:
        if one == 0 or math.isnan(one):
            return math.nan
        return math.copysign(math.inf, one) * math.copysign(1.0, other)
    return one / other


def _remainder(one: float, other: float) -> float:
    if other == 0 or math.isinf(one) or math.isnan(one) or math.isnan(other):
        return math.nan
    return math.fmod(one, other)


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "div": _divide,
    "mod": _remainder,
}


def _round(value: float) -> float:
    return value if math.isnan(value) or math.isinf(value) else float(math.floor(value + 0.5))


def _whole(function: Callable[[float], int]) -> Callable[[list[Value]], Value]:
    def of(given: list[Value]) -> Value:
        value = number(given[0])
        return value if math.isnan(value) or math.isinf(value) else float(function(value))

    return of


def _substring(given: list[Value]) -> Value:
    text, first = string(given[0]), _round(number(given[1]))
    end = first + _round(number(given[2])) if len(given) == 3 else math.inf
    return "".join(one for place, one in enumerate(text, 1) if first <= place < end)


def _translate(given: list[Value]) -> Value:
    text, old, new = map(string, given)
    table: dict[int, str | None] = {}
    for place, one in enumerate(old):
        table.setdefault(ord(one), new[place] if place < len(new) else None)
    return text.translate(table)


def _name(part: str) -> Callable[[list[Value]], Value]:
    def of(given: list[Value]) -> Value:
        if not isinstance(given[0], list):
            raise XPathFailed("a set of nodes was expected")
        node = given[0][0] if given[0] else None
        if not isinstance(node, XmlElement | Attribute):
            return ""
        return node.tag.rpartition("}")[2] if part != "namespace-uri" else node.tag[1:].rpartition("}")[0]

    return of


def _sum(given: list[Value]) -> Value:
    if not isinstance(given[0], list):
        raise XPathFailed("a set of nodes was expected")
    return math.fsum(number(one.text) for one in given[0])


def _count(given: list[Value]) -> Value:
    if not isinstance(given[0], list):
        raise XPathFailed("a set of nodes was expected")
    return float(len(given[0]))


OF_CONTEXT = frozenset({"string", "number", "string-length", "normalize-space", "local-name", "name", "namespace-uri"})
FUNCTIONS: dict[str, tuple[int, int, Callable[[list[Value]], Value]]] = {
    "count": (1, 1, _count),
    "local-name": (0, 1, _name("local-name")),
    "name": (0, 1, _name("name")),
    "namespace-uri": (0, 1, _name("namespace-uri")),
    "string": (0, 1, lambda given: string(given[0])),
    "concat": (2, 100, lambda given: "".join(map(string, given))),
    "starts-with": (2, 2, lambda given: string(given[0]).startswith(string(given[1]))),
    "contains": (2, 2, lambda given: string(given[1]) in string(given[0])),
    "substring-before": (2, 2, lambda given: _before(string(given[0]), string(given[1]))),
    "substring-after": (2, 2, lambda given: _after(string(given[0]), string(given[1]))),
    "substring": (2, 3, _substring),
    "string-length": (0, 1, lambda given: float(len(string(given[0])))),
    "normalize-space": (0, 1, lambda given: " ".join(string(given[0]).split())),
    "translate": (3, 3, _translate),
    "boolean": (1, 1, lambda given: boolean(given[0])),
    "not": (1, 1, lambda given: not boolean(given[0])),
    "true": (0, 0, lambda _: True),
    "false": (0, 0, lambda _: False),
    "number": (0, 1, lambda given: number(given[0])),
    "sum": (1, 1, _sum),
    "floor": (1, 1, _whole(math.floor)),
    "ceiling": (1, 1, _whole(math.ceil)),
    "round": (1, 1, lambda given: _round(number(given[0]))),
}


def _before(text: str, mark: str) -> str:
    found = text.partition(mark) if mark else ("", "", "")
    return found[0] if found[1] else ""


def _after(text: str, mark: str) -> str:
    return text.partition(mark)[2] if mark else text
