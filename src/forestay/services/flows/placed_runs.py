"""Finds for which run another run was placed in this domain or in a peer's, from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forestay.domain.peers.placing import Placing, placing_from_plain
from forestay.ports.documents import DocumentStore, StoredDocument


async def placed_for(documents: DocumentStore, run: str) -> str:
    """The run for which this run was placed; empty: it was not placed."""
    stored = (await documents.get([placing_name(run)])).get(placing_name(run))
    return placing_of(stored).parent if stored is not None else ""


async def placings(documents: DocumentStore, runs: Sequence[str]) -> Mapping[str, Placing]:
    """Where these runs of sub-flows were placed, by run; those that cannot run elsewhere are left out."""
    stored = await documents.get([placing_name(run) for run in runs]) if runs else {}
    return {placing.run: placing for placing in map(placing_of, stored.values())}


def placing_of(stored: StoredDocument) -> Placing:
    return placing_from_plain(stored.document.body)


def placing_name(run: str) -> str:
    return f"placing:{run}"
