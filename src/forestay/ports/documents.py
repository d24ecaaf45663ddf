"""The document store: small named documents that are not jobs, such as deliveries to a shard, suspensions and relays.

The same contract as the job store's, and the same store: a document is written whole, over the version that was read, and `Written` means
durable. `Conflicted` and `Unknown` mean that the write may have taken place: read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from forestay.ports.jobs.job_store import Version, WriteResult


class Document(NamedTuple):
    """One small document."""

    id: str
    tenant: str
    kind: str
    body: Mapping[str, object]


class StoredDocument(NamedTuple):
    """A document as it was read, with its version."""

    document: Document
    version: Version


class DocumentStore(Protocol):
    """The port. Opened and closed with the job store. Calls that read raise `Transient` when the store does not answer."""

    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        """Write each over the version that was read, independently of the others; None: it must not exist yet. The names must differ."""
        ...

    async def get(self, documents: Sequence[str]) -> Mapping[str, StoredDocument]:
        """Realtime; missing documents are left out."""
        ...

    async def find(self, kind: str, *, tenant: str | None = None) -> Sequence[StoredDocument]:
        """Every document of a kind, of one tenant or of all, by name; up to a second old."""
        ...

    async def remove(self, documents: Sequence[StoredDocument]) -> int:
        """Remove those that are still at the version that was read and return how many. `Transient` if unsure: read again."""
        ...

    async def kinds(self, prefix: str) -> Sequence[str]:
        """The kinds, of which there are documents, that begin with this text, in order; up to a second old."""
        ...
