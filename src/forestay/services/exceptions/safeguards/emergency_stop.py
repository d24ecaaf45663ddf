"""The global stop: one switch for each tenant and one for all, each a document; who set it and why is in it.

A stop holds for every act whose permission is asked after the stop was acknowledged. Acts that were permitted before may still be carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.exceptions.safeguards.safeguards import EVERY_TENANT, Stop
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict
from forestay.services.shared.document_update import update_document

KIND = "stop"
TRIES = 10


@dataclass(slots=True)
class EmergencyStop:
    """The service."""

    documents: DocumentStore
    clock: Clock

    async def stop(self, tenant: str, *, by: str, why: str) -> Stop:
        """Stop all acts of a tenant, or of all (`EVERY_TENANT`). One that is stopped already stays as it was stopped first."""
        wanted = Stop(tenant, by, why, self.clock.now())
        return await self._set(tenant, wanted) or wanted

    async def go(self, tenant: str) -> Stop:
        """Let acts go on, and say which stop it was; `Conflict` if there was none."""
        stopped = await self._set(tenant, None)
        if stopped is None:
            raise Conflict("nothing is stopped" if tenant == EVERY_TENANT else f"nothing is stopped in {tenant}")
        return stopped

    async def stops(self, tenant: str) -> Sequence[Stop]:
        """The stops that hold in a tenant at this moment."""
        return stops_in((await self.documents.get(names(tenant))).values())

    async def _set(self, tenant: str, wanted: Stop | None) -> Stop | None:
        """Set a switch; gives what stood there."""
        name = name_of(tenant)

        def switched(stored: StoredDocument | None) -> tuple[Document | None, Stop | None]:
            before = next(iter(stops_in([stored])), None) if stored is not None else None
            if (before is None) == (wanted is None):
                return None, before
            return Document(name, tenant, KIND, {"stop": wanted.as_plain() if wanted else None}), before

        return await update_document(
            self.documents, name, switched, tries=TRIES, unsure="the stop could not be stored; try again"
        )


def name_of(tenant: str) -> str:
    return f"stop:{tenant}"


def names(tenant: str) -> list[str]:
    """The documents that say whether a tenant is stopped."""
    return [name_of(EVERY_TENANT), name_of(tenant)]


def stops_in(stored_documents: Iterable[StoredDocument]) -> tuple[Stop, ...]:
    """The stops among documents that were read."""
    bodies = [
        stored_document.document.body.get("stop")
        for stored_document in stored_documents
        if stored_document.document.kind == KIND
    ]
    return tuple(Stop.from_plain(body) for body in bodies if isinstance(body, Mapping))
