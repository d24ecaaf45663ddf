"""Reads the small result of a job from its outputs."""

from __future__ import annotations

from typing import Protocol

MAX_RESULT = 65_536
"""Bytes; what is larger belongs into an output of its own."""


class Results(Protocol):
    """The port."""

    async def read(self, folder: str, name: str, most: int = MAX_RESULT) -> bytes | None:
        """The file in an attempt's own folder; None if it is not there, too large, or not where outputs may be."""
        ...
