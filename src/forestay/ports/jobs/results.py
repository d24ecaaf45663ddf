"""Reads the small result of a job from its outputs."""

from __future__ import annotations

from typing import Protocol

MAX_RESULT = 65_536
"""Bytes; a larger result belongs in an output of its own."""


class Results(Protocol):
    """The port."""

    async def read(self, folder: str, name: str, most: int = MAX_RESULT) -> bytes | None:
        """The file in an attempt's own folder; None if it is missing, too large, or outside the folders for outputs."""
        ...
