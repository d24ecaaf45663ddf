"""Ids as people read and type them: the first characters, as in git.

A list shows each id as short as is unique among those listed, but not below eight characters. Every command accepts such a
prefix in place of an id; `forestay.client.api.naming` resolves it. JSON always has whole ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

SHORT = 8


def short(name: str) -> str:
    """An id in a sentence."""
    return name[:SHORT].rstrip("-")


class ShortIds:
    """Ids of one list, all of the same length."""

    def __init__(self, ids: Iterable[str], *, whole: bool = False) -> None:
        ordered = sorted(set(ids))
        needed = SHORT
        for first, other in pairwise(ordered):
            same = next((place for place, (a, b) in enumerate(zip(first, other, strict=False)) if a != b), len(first))
            needed = max(needed, same + 1)
        self._length = None if whole else needed

    def short(self, name: str) -> str:
        return name[: self._length].rstrip("-")
