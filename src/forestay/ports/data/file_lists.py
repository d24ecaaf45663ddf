"""The files that a flow is scattered over, as an orchestrator sees them."""

from __future__ import annotations

from typing import Protocol

MAX_LISTED = 1_000_000
"""The most entries in one listing."""


class FileLists(Protocol):
    """The port. `Permanent` for a path that flows may not read, and for more than `MAX_LISTED` entries."""

    async def files(self, pattern: str) -> list[str]:
        """The absolute paths of the files that match, sorted by name; none if the folder does not exist."""
        ...

    async def lines(self, path: str) -> list[str]:
        """The lines of a file, without empty ones."""
        ...

    async def there(self, path: str) -> bool:
        """Whether the file exists."""
        ...
