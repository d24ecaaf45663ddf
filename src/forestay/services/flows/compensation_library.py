"""The compensation library of a tenant: how actions are undone, stored apart from the flows. It can be changed while runs are active.

A run looks up the entry when a task has completed, and keeps that version. Every version is kept for ever, so that it exists when the run is undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from forestay.domain.flows.definition.registered_compensation import (
    RegisteredCompensation,
    registered_as_plain,
    registered_from_plain,
    registered_version,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.services.shared.versioned_documents import ListedVersion, VersionedDocuments, VersionedText

KIND = "compensation"
MAX_COMPENSATION = 128 * 1024
"""Bytes of an entry's plain form as JSON."""


class StoredCompensation(NamedTuple):
    """An entry of the library as stored."""

    registered: RegisteredCompensation
    version: str
    by: str
    at: int
    versions: tuple[ListedVersion, ...] = ()
    """Newest first; only set in the newest version itself."""


@dataclass(frozen=True, slots=True)
class CompensationLibrary:
    """The service."""

    documents: DocumentStore
    clock: Clock

    @property
    def _versioned(self) -> VersionedDocuments:
        return VersionedDocuments(self.documents, self.clock, KIND, MAX_COMPENSATION)

    async def put(self, tenant: str, registered: RegisteredCompensation, *, by: str) -> StoredCompensation:
        """Store a checked entry, for tasks that complete from now on; the same content again is the same version."""
        text = orjson.dumps(registered_as_plain(registered)).decode()
        version = registered_version(registered)
        return _kept(await self._versioned.put(tenant, registered.action, text, version=version, by=by))

    async def get(self, tenant: str, action: str, version: str = "") -> StoredCompensation:
        """An entry at its newest or a given version; `NotFound`."""
        return _kept(await self._versioned.get(tenant, action, version))

    async def find(self, tenant: str, action: str) -> StoredCompensation | None:
        """The entry registered for an action now."""
        stored = await self._versioned.find(tenant, action)
        return _kept(stored) if stored is not None else None

    async def all(self, tenant: str) -> Sequence[StoredCompensation]:
        """Every entry of a tenant, by action; up to a second old."""
        return [_kept(stored) for stored in await self._versioned.all(tenant)]


def _kept(stored: VersionedText) -> StoredCompensation:
    registered = registered_from_plain(orjson.loads(stored.text))
    return StoredCompensation(registered, stored.version, stored.by, stored.at, stored.versions)
