"""The catalogue: where the copies of a logical file are.

Forestay's own is kept in the job store; another (an experiment's) may replace it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from forestay.domain.data.replica import LogicalFile, Replica, Viewpoint


class CatalogueListing(NamedTuple):
    """Files by name."""

    files: Sequence[LogicalFile]
    more: bool
    """Whether there are more files than the limit."""


class Catalogue(Protocol):
    """The port. Calls raise `Transient` when the catalogue's store does not answer.

    A name belongs to one tenant: two tenants' files of the same name are unrelated.
    """

    async def locate(self, names: Sequence[str], view: Viewpoint) -> Mapping[str, LogicalFile]:
        """An entry for each of these files, with the replicas that the tenant may read, cheapest first and failed ones last.

        An unknown file has no replicas. Whether a replica really exists is not checked.
        """
        ...

    async def add(
        self, tenant: str, name: str, replica: Replica, *, size: int | None, sha256: str | None
    ) -> LogicalFile:
        """Add a replica, or mark a failed one as good again; a size or digest that contradicts the catalogue raises `Conflict`."""
        ...

    async def remove(self, tenant: str, name: str, element: str, path: str | None = None) -> LogicalFile | None:
        """Remove replicas on an element from the catalogue; their files are not deleted. None if none was known."""
        ...

    async def mark(self, tenant: str, name: str, element: str, path: str, *, bad: bool, why: str = "") -> LogicalFile:
        """Mark a replica as failed, or as good again. A repeat within a minute writes nothing."""
        ...

    async def find(self, tenant: str, text: str = "", limit: int = 100) -> CatalogueListing:
        """Files with a document whose name contains the text, by name; up to a second old."""
        ...
