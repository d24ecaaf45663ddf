"""What a site agent stores on a file system that its nodes share: the secrets of pilots that have not started yet, and the output of pilots."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class PilotSpool(Protocol):
    """The port. Calls raise `Transient` when the file system does not do what was asked."""

    async def secret(self, launch: str) -> str | None:
        """The file with a launch's secret; None when there is none."""
        ...

    async def keep(self, launch: str, secret: str) -> str:
        """Keep a launch's secret, readable by its owner alone and durable; gives its file."""
        ...

    async def words(self, launch: str) -> str:
        """The end of what a launch's pilot printed; empty when it printed nothing."""
        ...

    async def clear(self, still_open: Collection[str]) -> None:
        """Remove what belongs to none of these launches: secrets at once, what pilots printed when it is old."""
        ...
