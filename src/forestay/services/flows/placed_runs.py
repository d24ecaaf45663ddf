"""Finds for which run another run was placed in this domain or in a peer's, from the store."""

from __future__ import annotations

from forestay.domain.peers.placing import Placing, placing_from_plain
from forestay.ports.documents import DocumentStore, StoredDocument


async def placed_for(documents: DocumentStore, run: str) -> str:
    """The run for which this run was placed; empty: it was not placed."""
    stored = (await documents.get([placing_name(run)])).get(placing_name(run))
    return placing_of(stored).parent if stored is not None else ""


def placing_of(stored: StoredDocument) -> Placing:
    return placing_from_plain(stored.document.body)


def placing_name(run: str) -> str:
    return f"placing:{run}"
