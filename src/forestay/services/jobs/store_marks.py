"""What a store reports to clients that submit jobs: its generation, and until when ended jobs were removed."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.services.shared.document_update import update_document

GENERATION = "generation"
PRUNED = "pruned"
JOBS, INCIDENTS = "before", "incidents"
"""What a mark of pruning is about, by its field."""


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """The generation of the domain."""

    number: int = 0
    unfinished: bool = False
    """A restore was begun, and not every job has been brought to the new generation."""


async def generation_of(documents: DocumentStore) -> GenerationStatus:
    """The generation of the domain; realtime."""
    return generation_in((await documents.get([GENERATION])).get(GENERATION))


def generation_in(stored: StoredDocument | None) -> GenerationStatus:
    if stored is None:
        return GenerationStatus()
    number = stored.document.body["number"]
    assert isinstance(number, int)  # noqa: S101 - we wrote it
    return GenerationStatus(number, bool(stored.document.body["unfinished"]))


async def pruned_before(documents: DocumentStore) -> int:
    """The time up to which ended jobs may have been removed (milliseconds since 1970; 0: none ever was)."""
    return pruned_until((await documents.get([PRUNED])).get(PRUNED))


def pruned_until(stored: StoredDocument | None) -> int:
    return int(str(stored.document.body.get("before", 0))) if stored is not None else 0


async def incidents_pruned_before(documents: DocumentStore) -> int:
    """The time up to which closed incidents may have been removed (milliseconds since 1970; 0: none ever was)."""
    stored = (await documents.get([PRUNED])).get(PRUNED)
    return int(str(stored.document.body.get(INCIDENTS, 0))) if stored is not None else 0


async def mark_pruned(documents: DocumentStore, what: str, before: int) -> None:
    """Record up to when something may be removed, before any is; the marks of other things stay."""

    def change(stored: StoredDocument | None) -> tuple[Document | None, None]:
        body = dict(stored.document.body) if stored is not None else {}
        if int(str(body.get(what, 0))) >= before:
            return None, None
        return Document(PRUNED, "", PRUNED, {"before": 0, **body, what: before}), None

    await update_document(documents, PRUNED, change, unsure="the pruning limit could not be stored")
