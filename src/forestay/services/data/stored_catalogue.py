"""The file catalogue in the job store: one document for each file that the naming rules do not fully describe.

Outputs of jobs need no document: their committed manifest names their location, so registering each would only cost each job another write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256 as digest

from forestay.domain.data.replica import (
    LogicalFile,
    Replica,
    Viewpoint,
    file_as_plain,
    file_from_plain,
    where,
)
from forestay.domain.data.storage_element import StorageElement
from forestay.ports.clock import Clock
from forestay.ports.data.catalogue import CatalogueListing
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict
from forestay.services.shared.document_update import update_document

KIND = "replica"
EMPTY = "replica-none"
"""The kind of a file's document while no replica of it is registered: the retention removes it."""
AGAIN = 60_000
"""Milliseconds within which a failed replica is not marked a second time: a thousand jobs may report it at once."""


@dataclass(slots=True)
class StoredCatalogue:
    """The service; implements the port `Catalogue`."""

    documents: DocumentStore
    clock: Clock
    elements: Mapping[str, StorageElement]

    async def locate(self, names: Sequence[str], view: Viewpoint) -> Mapping[str, LogicalFile]:
        if not self.elements:
            return {name: LogicalFile(name) for name in names}
        ids = {name: name_of(view.tenant, name) for name in names}
        stored = await self.documents.get(sorted(set(ids.values()))) if ids else {}
        now = self.clock.now()
        files: dict[str, LogicalFile] = {}
        for name, id_ in ids.items():
            known = file_from_plain(stored[id_].document.body) if id_ in stored else None
            files[name] = where(name, known, self.elements, view, now)
        return files

    async def add(
        self, tenant: str, name: str, replica: Replica, *, size: int | None, sha256: str | None
    ) -> LogicalFile:
        def change(known: LogicalFile) -> LogicalFile:
            for what, before, after in (("size", known.size, size), ("digest", known.sha256, sha256)):
                if before is not None and after is not None and before != after:
                    raise Conflict(f"the {what} of {name} is {before}, not {after}")
            told_file = replace(known, size=known.size if size is None else size, sha256=known.sha256 or sha256)
            return told_file.with_replica(replica)

        return await self._change(tenant, name, change)

    async def remove(self, tenant: str, name: str, element: str, path: str | None = None) -> LogicalFile | None:
        gone: list[Replica] = []

        def change(known: LogicalFile) -> LogicalFile:
            left = known.without(element, path)
            gone[:] = [replica for replica in known.replicas if replica not in left.replicas]
            return left

        file = await self._change(tenant, name, change)
        return file if gone else None

    async def mark(self, tenant: str, name: str, element: str, path: str, *, bad: bool, why: str = "") -> LogicalFile:
        now = self.clock.now()

        def change(known: LogicalFile) -> LogicalFile:
            before = next((replica for replica in known.replicas if replica.place == (element, path)), None)
            if bad and before is not None and before.bad_since is not None and now - before.bad_since < AGAIN:
                return known
            if not bad and (before is None or before.bad_since is None):
                return known
            return known.marked(element, path, bad=now if bad else None, why=why[:200])

        return await self._change(tenant, name, change)

    async def find(self, tenant: str, text: str = "", limit: int = 100) -> CatalogueListing:
        documents = await self.documents.find(KIND, tenant=tenant)
        files = [file_from_plain(stored_document.document.body) for stored_document in documents]
        wanted = sorted((file for file in files if text in file.name and file.replicas), key=lambda file: file.name)
        return CatalogueListing(wanted[:limit], len(wanted) > limit)

    async def _change(self, tenant: str, name: str, change: Callable[[LogicalFile], LogicalFile]) -> LogicalFile:
        id_ = name_of(tenant, name)

        def changed(stored: StoredDocument | None) -> tuple[Document | None, LogicalFile]:
            before = file_from_plain(stored.document.body) if stored is not None else LogicalFile(name)
            after = change(before)
            kind = KIND if after.replicas else EMPTY
            return None if after == before else Document(id_, tenant, kind, file_as_plain(after)), after

        unsure = f"the catalogue entry of {name} could not be stored; try again"
        return await update_document(self.documents, id_, changed, unsure=unsure)


def name_of(tenant: str, name: str) -> str:
    """The name of a file's document: a digest, since file names are long and documents are looked up by name."""
    text = f"{tenant}\n{name}"
    return f"replica:{digest(text.encode()).hexdigest()}"
