"""Named texts, of which each content is a version that is kept; the name refers to the newest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.jobs.job_store import Written
from forestay.services.shared.document_update import update_document

MOST_VERSIONS = 100
"""The most versions that are listed; older ones can still be read."""


class ListedVersion(NamedTuple):
    """A version in the list of versions."""

    version: str
    by: str
    at: int


class VersionedText(NamedTuple):
    """A text as stored."""

    name: str
    text: str
    version: str
    by: str
    at: int
    versions: tuple[ListedVersion, ...] = ()
    """Newest first; only set in the newest version itself."""


@dataclass(frozen=True, slots=True)
class VersionedDocuments:
    """Those of one kind, such as ``playbook``."""

    documents: DocumentStore
    clock: Clock
    kind: str
    most: int
    """The most bytes of a text."""

    async def put(self, tenant: str, name: str, text: str, *, version: str, by: str) -> VersionedText:
        """Store a text; the same again is the same version."""
        size = len(text.encode())
        if size > self.most:
            raise Permanent(f"the {self.kind} has {size} bytes as JSON; the limit is {self.most}")
        now, named = self.clock.now(), self._named(tenant, name)
        body: dict[str, object] = {self.kind: text, "version": version, "by": by, "at": now}
        await self._keep_version(Document(f"{named}@{version}", tenant, f"{self.kind}-version", body))

        def changed(stored: StoredDocument | None) -> tuple[Document | None, VersionedText]:
            before = self._read(name, stored) if stored is not None else None
            if before is not None and (before.version, before.text) == (version, text):
                return None, before
            entries = before.versions if before is not None else ()
            if before is None or before.version != version:
                entries = (ListedVersion(version, by, now), *entries)[:MOST_VERSIONS]
            document = Document(named, tenant, self.kind, {**body, "versions": [list(entry) for entry in entries]})
            return document, VersionedText(name, text, version, by, now, entries)

        unsure = f"the {self.kind} could not be stored; send it again"
        return await update_document(self.documents, named, changed, unsure=unsure)

    async def _keep_version(self, document: Document) -> None:
        (result,) = await self.documents.put([(document, None)])
        if not isinstance(result, Written) and not await self.documents.get([document.id]):
            raise Transient(f"the version of the {self.kind} may not be stored; send it again")

    async def find(self, tenant: str, name: str, version: str = "") -> VersionedText | None:
        """A text at its newest or a given version."""
        wanted = self._named(tenant, name) + (f"@{version}" if version else "")
        stored = (await self.documents.get([wanted])).get(wanted)
        return self._read(name, stored) if stored is not None else None

    async def get(self, tenant: str, name: str, version: str = "") -> VersionedText:
        """As `find`; `NotFound`."""
        stored = await self.find(tenant, name, version)
        if stored is None:
            raise NotFound(f"there is no {self.kind} {name}" + (f" of version {version}" if version else ""))
        return stored

    async def all(self, tenant: str) -> Sequence[VersionedText]:
        """Every text of a tenant, by name; up to a second old."""
        start = len(self._named(tenant, ""))
        texts = [
            self._read(stored.document.id[start:], stored)
            for stored in await self.documents.find(self.kind, tenant=tenant)
        ]
        return sorted(texts, key=lambda stored_text: stored_text.name)

    def _named(self, tenant: str, name: str) -> str:
        return f"{self.kind}:{tenant}:{name}"

    def _read(self, name: str, stored: StoredDocument) -> VersionedText:
        body = stored.document.body
        listed = cast("Sequence[tuple[str, str, int]]", body.get("versions", ()))
        entries = tuple(ListedVersion(*fields) for fields in listed)
        return VersionedText(
            name, str(body[self.kind]), str(body["version"]), str(body["by"]), int(str(body["at"])), entries
        )
