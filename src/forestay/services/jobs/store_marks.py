"""What a store reports to clients that submit jobs: its generation, and until when ended jobs were removed."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.ports.documents import DocumentStore, StoredDocument

GENERATION = "generation"
PRUNED = "pruned"


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
    return int(str(stored.document.body["before"])) if stored is not None else 0
