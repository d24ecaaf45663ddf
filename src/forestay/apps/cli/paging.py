"""Lists that are read page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

PAGE = 1000

T = TypeVar("T")


def newest(fetch: Callable[[int, str | None], tuple[list[T], str | None]], limit: int) -> tuple[list[T], bool]:
    """The requested number of entries, and whether there are more. ``fetch`` returns a number of entries from a cursor on, and the next cursor."""
    results: list[T] = []
    cursor: str | None = None
    while True:
        some, cursor = fetch(min(PAGE, limit - len(results)), cursor)
        results += some
        if cursor is None or len(results) >= limit:
            return results, cursor is not None
