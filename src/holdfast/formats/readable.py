"""Documents that can be read, of many: one that cannot stops nobody but itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Found = TypeVar("Found")
Read = TypeVar("Read")

SPOILT = (ValueError, KeyError, TypeError, AttributeError)
"""What reading a document that is not one raises."""
REMEMBERED = 1_000


class Readable:
    """Reads what can be read, and tells once of each that cannot."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        """`tell` is given the name of a document and why it cannot be read."""
        self._tell = tell
        self._told: set[str] = set()

    def each(self, found: Iterable[tuple[str, Found]], read: Callable[[Found], Read]) -> list[Read]:
        """What was read, in order, without the spoilt ones."""
        good = []
        for name, one in found:
            try:
                good.append(read(one))
            except SPOILT as error:
                if name not in self._told:
                    if len(self._told) >= REMEMBERED:
                        self._told.clear()
                    self._told.add(name)
                    self._tell(name, f"{type(error).__name__}: {error}")
        return good
