"""Text in columns: as wide as needed, and no wider than the terminal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forestay.apps.cli import neutral


class Column(NamedTuple):
    """A heading and the alignment of its values."""

    heading: str
    right: bool = False
    flexible: bool = False
    """Its values are cut first if the terminal is too narrow."""
    style: Callable[[str], str] | None = None
    """The colour of a value."""
    wide: bool = False
    """Only shown with `-o wide`."""


SHORTEST = 8
"""A flexible column is not cut below this width as long as others can be cut."""


def cells(text: str) -> int:
    """The width of a text on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, width: int) -> str:
    """A text cut to a width, with a sign that something is missing."""
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
    width: int | None = None,
) -> list[str]:
    """The lines of a table, none longer than the width if there is one. Every value is made harmless here."""
    clean = [[neutral.line(value) for value in row] for row in rows]
    needed = [
        max([cells(row[place]) for row in clean] + [len(column.heading) if heading else 0])
        for place, column in enumerate(columns)
    ]
    widths = needed if width is None else fitted(columns, needed, width)
    lines = []
    if heading:
        titles = [
            padded(cut(column.heading, wide), wide, right=column.right)
            for column, wide in zip(columns, widths, strict=True)
        ]
        lines.append(paint(" ".join(titles).rstrip(), "bold"))
    for row in clean:
        parts = []
        for value, column, wide in zip(row, columns, widths, strict=True):
            text = padded(cut(value, wide), wide, right=column.right)
            parts.append(paint(text, column.style(value)) if column.style else text)
        lines.append(" ".join(parts).rstrip())
    return lines


def fitted(columns: Sequence[Column], needed: Sequence[int], width: int) -> list[int]:
    """Widths that fit. The widest flexible column is cut first; if that is not enough, the others from the right."""
    widths = list(needed)
    too_much = sum(widths) + len(widths) - 1 - width
    flexible = [place for place, column in enumerate(columns) if column.flexible]
    while too_much > 0 and any(widths[place] > SHORTEST for place in flexible):
        widest = max(flexible, key=lambda place: widths[place])
        widths[widest] -= 1
        too_much -= 1
    for place in reversed(range(len(widths))):
        given_max = max(0, min(too_much, widths[place] - 1))
        widths[place] -= given_max
        too_much -= given_max
    return widths


_PIECES = re.compile(r"((?:\x1b\[[0-9;]*m)+)|( +)|([^ \x1b]+)")


def folded(text: str, width: int, indent: int) -> list[str]:
    """A line wrapped to a width at spaces; all parts but the first are indented. Colours take no width."""
    lines, line, used, gap = list[str](), "", 0, ""
    for match in _PIECES.finditer(text):
        colour, space, word = match.groups()
        if colour:
            line += gap + colour
            used, gap = used + len(gap), ""
        elif space:
            gap += space
        else:
            while word:
                room = width - used - len(gap)
                if cells(word) <= room:
                    line, used, gap, word = line + gap + word, used + len(gap) + cells(word), "", ""
                elif used > indent:
                    lines.append(line)
                    line, used, gap = " " * indent, indent, ""
                else:
                    # Longer than a line: it is broken anywhere.
                    part = word[:1]
                    while len(part) < len(word) and cells(word[: len(part) + 1]) <= room:
                        part = word[: len(part) + 1]
                    lines.append(line + gap + part)
                    line, used, gap, word = " " * indent, indent, "", word[len(part) :]
    return [*lines, line] if line.strip() or not lines else lines
