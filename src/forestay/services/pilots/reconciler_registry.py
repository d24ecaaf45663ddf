"""The register of running reconcilers. No request goes to a reconciler, so without it nobody would notice that none runs.

One small document for the whole domain: each reconciler writes its line again every so often, and drops the lines of those long gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.services.shared.document_update import update_document

NAME = KIND = "reconcilers"
EVERY = 20.0
"""Seconds between two reports of one reconciler."""
SILENT = 90
"""Seconds after which a reconciler counts as gone. This compares two machines' clocks, which is good enough for display and nothing else."""
FORGET = 900


@dataclass(frozen=True, slots=True)
class ReconcilerReport:
    """The last report of one reconciler."""

    name: str
    version: str
    at: int
    """Milliseconds since 1970, by its own clock."""

    def silent(self, now: int) -> bool:
        return now - self.at > 1000 * SILENT


@dataclass(slots=True)
class ReconcilerRegistry:
    """The service."""

    documents: DocumentStore
    clock: Clock
    name: str
    version: str
    troubled: Callable[[str], None] = lambda _: None

    async def note(self) -> None:
        """Write our line. `Transient` if the store did not accept it."""

        def written(stored: StoredDocument | None) -> tuple[Document, None]:
            now = self.clock.now()
            known: Mapping[str, Any] = stored.document.body if stored is not None else {}
            body = {name: line for name, line in known.items() if now - line["at"] <= 1000 * FORGET}
            body[self.name] = {"at": now, "version": self.version}
            return Document(NAME, "", KIND, body), None

        await update_document(self.documents, NAME, written, unsure="the reconciler's report could not be stored")

    async def run(self) -> None:
        """Report periodically, until cancelled. An outage of the store only makes us silent."""
        while True:
            try:
                await self.note()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(EVERY)


async def reconcilers_known(documents: DocumentStore) -> Sequence[ReconcilerReport]:
    """The last report of each reconciler, newest first."""
    stored = (await documents.get([NAME])).get(NAME)
    body: Mapping[str, Any] = stored.document.body if stored is not None else {}
    words = [ReconcilerReport(name, line["version"], line["at"]) for name, line in body.items()]
    return sorted(words, key=lambda word: -word.at)
