"""The catalogue: where the copies of a logical file are.

Forestay's own is kept in the job store; another (an experiment's) may stand in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from forestay.domain.data.replica import LogicalFile, Replica, Viewpoint


class CatalogueListing(NamedTuple):
    """Files by name."""

    files: Sequence[LogicalFile]
    more: bool
    """Whether there are more than were asked for."""


class Catalogue(Protocol):
    """The port. Calls raise `Transient` when what keeps it does not answer.

    A name is that of one tenant: two tenants' files of the same name have nothing to do with each other.
    """

    async def locate(self, names: Sequence[str], view: Viewpoint) -> Mapping[str, LogicalFile]:
        """What is known of these files, one each, with those replicas that the tenant may have, cheapest first and failed ones last.

        A file of which nothing is known has no replicas. Whether a replica is really there is not asked.
        """
        ...

    async def add(
        self, tenant: str, name: str, replica: Replica, *, size: int | None, sha256: str | None
    ) -> LogicalFile:
        """Add a replica, or make one good again; a size or digest that contradicts what is known is `Conflict`."""
        ...

    async def remove(self, tenant: str, name: str, element: str, path: str | None = None) -> LogicalFile | None:
        """Take replicas on an element out of the catalogue; nothing is deleted there. None if none was known."""
        ...

    async def mark(self, tenant: str, name: str, element: str, path: str, *, bad: bool, why: str = "") -> LogicalFile:
        """Say that a replica failed, or that it is good again. A repeat within a minute writes nothing."""
        ...

    async def find(self, tenant: str, text: str = "", limit: int = 100) -> CatalogueListing:
        """Files with a document whose name contains the text, by name; up to a second old."""
        ...
