"""The store of the audit log: pages of entries, each created once and never rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forestay.domain.exceptions.safeguards.audit import AuditPage

MAX_PAGES = 1_000
"""The most pages of one read."""


class AuditStore(Protocol):
    """The port. Opened and closed with the job store. Calls raise `Transient` when the store does not answer.

    There is no call that changes a page. Only the oldest pages of a chain can be removed, after the chain itself records up to where.
    """

    async def add(self, page: AuditPage) -> bool:
        """Create a page; True means durable. False: another page has its number, and is kept. `Transient` if unsure: read it back."""
        ...

    async def get(self, tenant: str, numbers: Sequence[int]) -> Mapping[int, AuditPage]:
        """Pages by their numbers, realtime; missing pages are left out."""
        ...

    async def last(self, tenant: str) -> AuditPage | None:
        """The newest page of a tenant, up to a second old: a hint. `get` finds later ones."""
        ...

    async def find(self, tenant: str, *, entry: int, limit: int = 100) -> Sequence[AuditPage]:
        """Pages in order, starting with the one that contains the entry of this number, or the first after it; up to a second old."""
        ...

    async def tenants(self) -> Sequence[str]:
        """All that have a chain; up to a second old."""
        ...

    async def remove_first(self, tenant: str, last: int) -> int:
        """Remove the pages of a chain up to this number; returns how many. `Transient` if unsure: remove again."""
        ...
