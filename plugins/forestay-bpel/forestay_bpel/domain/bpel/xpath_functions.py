"""The functions and operators of XPath 1.0."""

from __future__ import annotations

import math
from collections.abc import Callable

from forestay_bpel.domain.bpel.xpath_values import Attribute, Value, XPathFailed, boolean, number, string
from forestay_bpel.domain.xml_tree import XmlElement


def _divide(dividend: float, other: float) -> float:
    if other == 0:
        if dividend == 0 or math.isnan(dividend):
            return math.nan
        return math.copysign(math.inf, dividend) * math.copysign(1.0, other)
    return dividend / other


def _remainder(dividend: float, other: float) -> float:
    if other == 0 or math.isinf(dividend) or math.isnan(dividend) or math.isnan(other):
        return math.nan
    return math.fmod(dividend, other)


COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda first, other: first == other,
    "!=": lambda first, other: first != other,
    "<": lambda first, other: first < other,
    "<=": lambda first, other: first <= other,
    ">": lambda first, other: first > other,
    ">=": lambda first, other: first >= other,
}
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda first, other: first + other,
    "-": lambda first, other: first - other,
    "*": lambda first, other: first * other,
    "div": _divide,
    "mod": _remainder,
}


def _round(value: float) -> float:
    return value if math.isnan(value) or math.isinf(value) else float(math.floor(value + 0.5))


def _whole(function: Callable[[float], int]) -> Callable[[list[Value]], Value]:
    def of(arguments: list[Value]) -> Value:
        value = number(arguments[0])
        return value if math.isnan(value) or math.isinf(value) else float(function(value))

    return of


def _substring(arguments: list[Value]) -> Value:
    text, first = string(arguments[0]), _round(number(arguments[1]))
    end = first + _round(number(arguments[2])) if len(arguments) == 3 else math.inf
    return "".join(char for place, char in enumerate(text, 1) if first <= place < end)


def _translate(arguments: list[Value]) -> Value:
    text, old, new = map(string, arguments)
    table: dict[int, str | None] = {}
    for place, char in enumerate(old):
        table.setdefault(ord(char), new[place] if place < len(new) else None)
    return text.translate(table)


def _name(part: str) -> Callable[[list[Value]], Value]:
    def of(arguments: list[Value]) -> Value:
        if not isinstance(arguments[0], list):
            raise XPathFailed("a set of nodes was expected")
        node = arguments[0][0] if arguments[0] else None
        if not isinstance(node, XmlElement | Attribute):
            return ""
        return node.tag.rpartition("}")[2] if part != "namespace-uri" else node.tag[1:].rpartition("}")[0]

    return of


def _sum(arguments: list[Value]) -> Value:
    if not isinstance(arguments[0], list):
        raise XPathFailed("a set of nodes was expected")
    return math.fsum(number(argument.text) for argument in arguments[0])


def _count(arguments: list[Value]) -> Value:
    if not isinstance(arguments[0], list):
        raise XPathFailed("a set of nodes was expected")
    return float(len(arguments[0]))


OF_CONTEXT = frozenset({"string", "number", "string-length", "normalize-space", "local-name", "name", "namespace-uri"})
FUNCTIONS: dict[str, tuple[int, int, Callable[[list[Value]], Value]]] = {
    "count": (1, 1, _count),
    "local-name": (0, 1, _name("local-name")),
    "name": (0, 1, _name("name")),
    "namespace-uri": (0, 1, _name("namespace-uri")),
    "string": (0, 1, lambda arguments: string(arguments[0])),
    "concat": (2, 100, lambda arguments: "".join(map(string, arguments))),
    "starts-with": (2, 2, lambda arguments: string(arguments[0]).startswith(string(arguments[1]))),
    "contains": (2, 2, lambda arguments: string(arguments[1]) in string(arguments[0])),
    "substring-before": (2, 2, lambda arguments: _before(string(arguments[0]), string(arguments[1]))),
    "substring-after": (2, 2, lambda arguments: _after(string(arguments[0]), string(arguments[1]))),
    "substring": (2, 3, _substring),
    "string-length": (0, 1, lambda arguments: float(len(string(arguments[0])))),
    "normalize-space": (0, 1, lambda arguments: " ".join(string(arguments[0]).split())),
    "translate": (3, 3, _translate),
    "boolean": (1, 1, lambda arguments: boolean(arguments[0])),
    "not": (1, 1, lambda arguments: not boolean(arguments[0])),
    "true": (0, 0, lambda _: True),
    "false": (0, 0, lambda _: False),
    "number": (0, 1, lambda arguments: number(arguments[0])),
    "sum": (1, 1, _sum),
    "floor": (1, 1, _whole(math.floor)),
    "ceiling": (1, 1, _whole(math.ceil)),
    "round": (1, 1, lambda arguments: _round(number(arguments[0]))),
}


def _before(text: str, mark: str) -> str:
    before = text.partition(mark) if mark else ("", "", "")
    return before[0] if before[1] else ""


def _after(text: str, mark: str) -> str:
    return text.partition(mark)[2] if mark else text
