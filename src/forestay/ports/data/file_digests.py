"""The content of input files, as an orchestrator sees it before a job is created."""

from __future__ import annotations

from typing import Protocol

MAX_DIGESTED = 1 << 30
"""Size in bytes of the largest file whose digest is computed."""


class FileDigests(Protocol):
    """The port."""

    async def digest(self, path: str) -> str | None:
        """The SHA-256 of a file as it is now; None if it cannot be read here, is larger than `MAX_DIGESTED`, or is outside the folders that flows may read."""
        ...
