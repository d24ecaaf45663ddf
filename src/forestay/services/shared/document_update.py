"""One document, read, changed and written over what was read, until a write stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Written

T = TypeVar("T")


async def update_document(
    documents: DocumentStore,
    name: str,
    change: Callable[[StoredDocument | None], tuple[Document | None, T]],
    *,
    tries: int,
    unsure: str,
) -> T:
    """Let `change` see what stands and say what is to stand there (None: what does) and what is answered; it may be asked again.

    A write that was refused, or of which nobody knows, may have been another's or our own: what stands is looked at anew. `Transient` with
    the words of `unsure` after so many tries.
    """
    for _ in range(tries):
        stored = (await documents.get([name])).get(name)
        document, answer = change(stored)
        if document is None:
            return answer
        (result,) = await documents.put([(document, stored.version if stored is not None else None)])
        if isinstance(result, Written):
            return answer
    raise Transient(unsure)
