"""The functions that every executor is given, and how their results are checked. They know the standard library alone."""

from __future__ import annotations

import time
from collections.abc import Iterable


def plus(number: int) -> int:
    """Nothing but the way there and back."""
    return number + 1


def nap(seconds: float) -> float:
    """A task of a known length, which wants no processor."""
    time.sleep(seconds)
    return seconds


def check(results: Iterable[object], calls: int, seconds: float) -> None:
    wanted: list[object] = [seconds] * calls if seconds else list(range(1, calls + 1))
    if list(results) != wanted:
        raise ValueError("not what the function gives")
