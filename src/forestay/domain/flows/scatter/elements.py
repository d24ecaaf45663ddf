"""Sets of the elements of a scatter, as bitmaps: element i is bit i.

A bitmap is an ``int`` in memory and a text of hexadecimal digits in JSON, so that 5,000 elements take at most 1,250 characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def elements(indexes: Iterable[int]) -> int:
    """The set of these elements."""
    count = 0
    for index in indexes:
        count |= 1 << index
    return count


def indexes(bits: int) -> Iterator[int]:
    """The elements of a set, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def every(count: int) -> int:
    """The set of the elements 0 to count - 1."""
    return (1 << count) - 1


def to_text(bits: int) -> str:
    """The set as text for JSON."""
    return format(bits, "x")


def from_text(text: str) -> int:
    """The set as it was."""
    return int(text, 16)


def nearly_all(bits: int, count: int) -> str:
    """A set that lacks few of its elements, as a short text: ``~`` and those that it lacks; else as `to_text`."""
    missing = every(count) & ~bits
    if missing.bit_count() > FEW:
        return to_text(bits)
    return "~" + ",".join(format(index, "x") for index in indexes(missing))


def from_nearly_all(text: str, count: int) -> int:
    """The set as it was."""
    if not text.startswith("~"):
        return from_text(text)
    return every(count) & ~elements(int(part, 16) for part in text[1:].split(",") if part)


FEW = 100
