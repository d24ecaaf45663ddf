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
"""Conflicts in a row after which the store counts as failing."""

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
    """Call `change` with the stored document; it returns the new one (None: no change) and the answer, and may be called again.

    After a write that conflicted or whose outcome is unknown, the stored document may be another's or our own, and is read again. `Transient` with
    the text `unsure` after `tries` attempts.
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
    """Change a pilot's document, as `update_stored` does; does nothing if there is no such pilot."""

    async def read() -> StoredPilot | None:
        return await pilots.get_pilot(name)

    async def write(pilot: Pilot, stored: StoredPilot | None) -> WriteResult:
        return await pilots.put_pilot(pilot, stored.version if stored is not None else None)

    await update_stored(
        read, lambda stored: (change(stored.pilot) if stored is not None else None, None), write, unsure=unsure
    )
