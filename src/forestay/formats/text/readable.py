"""Reads many stored documents: one that cannot be read does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Found = TypeVar("Found")
Read = TypeVar("Read")

SPOILT = (ValueError, KeyError, TypeError, AttributeError)
"""The errors that reading an invalid document raises."""
REMEMBERED = 1_000


class Readable:
    """Reads all readable documents, and reports each unreadable one once."""

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        """`tell` is called with the name of a document and the reason why it cannot be read."""
        self.spoilt = 0
        """How many unreadable documents were reported, for metrics."""
        self._tell = tell
        self._told: set[str] = set()

    def each(self, documents: Iterable[tuple[str, Found]], read: Callable[[Found], Read]) -> list[Read]:
        """The documents that were read, in order, without the unreadable ones."""
        return self.split(documents, read)[0]

    def split(
        self, documents: Iterable[tuple[str, Found]], read: Callable[[Found], Read]
    ) -> tuple[list[Read], list[str]]:
        """The documents that were read, in order, and the names of the unreadable ones."""
        good: list[Read] = []
        bad: list[str] = []
        for name, document in documents:
            try:
                good.append(read(document))
            except SPOILT as error:
                bad.append(name)
                if name not in self._told:
                    if len(self._told) >= REMEMBERED:
                        self._told.clear()
                    self._told.add(name)
                    self.spoilt += 1
                    self._tell(name, f"{type(error).__name__}: {error}")
        return good, bad
