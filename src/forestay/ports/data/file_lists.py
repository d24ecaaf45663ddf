"""The files that a flow is scattered over, as an orchestrator sees them."""

from __future__ import annotations

from typing import Protocol

MAX_LISTED = 1_000_000
"""Members of one listing."""


class FileLists(Protocol):
    """The port. `Permanent` for a place that flows may not look at, and for more than `MAX_LISTED` members."""

    async def files(self, pattern: str) -> list[str]:
        """The whole paths of the files that match, in the order of their names; none if the folder is not there."""
        ...

    async def lines(self, path: str) -> list[str]:
        """The lines of a file, without empty ones."""
        ...

    async def there(self, path: str) -> bool:
        """Whether there is such a file."""
        ...
