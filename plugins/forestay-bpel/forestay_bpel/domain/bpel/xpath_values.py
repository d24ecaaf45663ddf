"""The values of XPath expressions: nodes, other values, and the conversions between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forestay_bpel.domain.xml_tree import XmlElement


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A text inside an element."""

    parent: XmlElement
    place: int

    @property
    def text(self) -> str:
        child = self.parent.children[self.place]
        return child if isinstance(child, str) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    parent: XmlElement
    tag: str

    @property
    def text(self) -> str:
        return self.parent.attributes.get(self.tag, "")


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """The document node above the outermost element."""

    child: XmlElement

    @property
    def text(self) -> str:
        return self.child.text


Node = XmlElement | Text | Attribute | Root
Value = float | str | bool | list[Node]
Lookup = Callable[[str], "Value"]
Functions = Mapping[tuple[str, str], Callable[[list["Value"]], "Value"]]


class XPathFailed(ValueError):
    """An expression that could not be evaluated: an unknown variable or function, or too much work."""


def string(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, str):
        return value
    return value[0].text if value else ""


def _number_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == int(value):
        return str(int(value))
    text = f"{value:.15f}".rstrip("0")
    return text if float(text) == value else repr(value)


def number(value: Value) -> float:
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, float):
        return value
    try:
        text = string(value).strip(" \t\r\n")
        if not text or not set(text) <= set("0123456789.-") or text.endswith("-"):
            return math.nan
        return float(text)
    except ValueError:
        return math.nan


def boolean(value: Value) -> bool:
    if isinstance(value, float):
        return value != 0 and not math.isnan(value)
    return bool(value)
