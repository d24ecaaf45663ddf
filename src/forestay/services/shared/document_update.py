"""Reads a document, changes it, and writes it if its version is still the same; repeats this until a write succeeds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from forestay.domain.pilots.pilot import Pilot
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import WriteResult, Written
from forestay.ports.pilots.pilot_store import PilotStore, StoredPilot

TRIES = 20
"""After so many writes that others came before, the store is in trouble."""

S = TypeVar("S")
D = TypeVar("D")
T = TypeVar("T")


async def update_stored(
    read: Callable[[], Awaitable[S]],
    change: Callable[[S], tuple[D | None, T]],
    write: Callable[[D, S], Awaitable[WriteResult]],
    *,
    unsure: str,
    tries: int = TRIES,
) -> T:
    """Let `change` see what stands and say what is to stand there (None: what does) and what is answered; it may be asked again.

    A write that was refused, or of which nobody knows, may have been another's or our own: what stands is looked at anew. `Transient` with
    the words of `unsure` after so many tries.
    """
    for _ in range(tries):
        stored = await read()
        changed, answer = change(stored)
        if changed is None or isinstance(await write(changed, stored), Written):
            return answer
    raise Transient(unsure)


async def update_document(
    documents: DocumentStore,
    name: str,
    change: Callable[[StoredDocument | None], tuple[Document | None, T]],
    *,
    unsure: str,
    tries: int = TRIES,
) -> T:
    """Change one document, as `update_stored` does."""

    async def read() -> StoredDocument | None:
        return (await documents.get([name])).get(name)

    async def write(document: Document, stored: StoredDocument | None) -> WriteResult:
        (result,) = await documents.put([(document, stored.version if stored is not None else None)])
        return result

    return await update_stored(read, change, write, unsure=unsure, tries=tries)


async def update_pilot(pilots: PilotStore, name: str, change: Callable[[Pilot], Pilot | None], *, unsure: str) -> None:
    """Change what is stored of a pilot, as `update_stored` does; nothing if there is no such pilot."""

    async def read() -> StoredPilot | None:
        return await pilots.get_pilot(name)

    async def write(pilot: Pilot, stored: StoredPilot | None) -> WriteResult:
        return await pilots.put_pilot(pilot, stored.version if stored is not None else None)

    await update_stored(
        read, lambda stored: (change(stored.pilot) if stored is not None else None, None), write, unsure=unsure
    )
