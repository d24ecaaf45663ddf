"""What a site agent stores on a file system that its nodes share: the secrets of pilots that have not started yet, and the output of pilots."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class PilotSpool(Protocol):
    """The port. Calls raise `Transient` when the file system fails."""

    async def secret(self, launch: str) -> str | None:
        """The path of the file with a launch's secret; None when there is none."""
        ...

    async def keep(self, launch: str, secret: str) -> str:
        """Store a launch's secret durably, readable by its owner only, and return the path of its file."""
        ...

    async def words(self, launch: str) -> str:
        """The end of the output of a launch's pilot; empty when it printed nothing."""
        ...

    async def clear(self, still_open: Collection[str]) -> None:
        """Remove what belongs to none of these launches: secrets at once, output of pilots when it is old."""
        ...
