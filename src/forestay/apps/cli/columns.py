"""Text in columns, as wide as it needs to be."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forestay.apps.cli import neutral


class Column(NamedTuple):
    """A heading, and how the values below it stand."""

    heading: str
    right: bool = False
    widest: int | None = None
    """Longer values are cut."""
    style: Callable[[str], str] | None = None
    """The colour of a value."""


def cells(text: str) -> int:
    """How many places of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """At most so wide, with a sign that something is missing."""
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    gap = " " * max(0, width - cells(text))
    return gap + text if right else text + gap


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    *,
    paint: Callable[..., str] = lambda text, *_: text,
    heading: bool = True,
) -> list[str]:
    """The lines of a table. Every value is made harmless here."""
    clean = [
        [cut(neutral.line(value), column.widest) if column.widest else neutral.line(value)
         for value, column in zip(row, columns, strict=True)]
        for row in rows
    ]  # fmt: skip
    widths = [
        max([cells(row[place]) for row in clean] + [len(column.heading) if heading else 0])
        for place, column in enumerate(columns)
    ]
    lines = []
    if heading:
        titles = [
            padded(column.heading, width, right=column.right) for column, width in zip(columns, widths, strict=True)
        ]
        lines.append(paint(" ".join(titles).rstrip(), "bold"))
    for row in clean:
        parts = []
        for value, column, width in zip(row, columns, widths, strict=True):
            text = padded(value, width, right=column.right)
            parts.append(paint(text, column.style(value)) if column.style else text)
        lines.append(" ".join(parts).rstrip())
    return lines
