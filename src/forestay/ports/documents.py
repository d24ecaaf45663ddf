"""Slips: small documents that are none of a job, each under a name: what was delivered to a shard, a gate, who relays.

The same law as the job store's, and the same store: a slip is written whole, over the version that was read, and `Written` means
durable. `Conflicted` and `Unknown` mean that the write may have taken place: read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from forestay.ports.jobs.job_store import Version, WriteResult


class Slip(NamedTuple):
    """One small document."""

    id: str
    tenant: str
    kind: str
    body: Mapping[str, object]


class StoredSlip(NamedTuple):
    """A slip as it was read, with its version."""

    slip: Slip
    version: Version


class SlipStore(Protocol):
    """The port. Opened and closed with the job store. Calls that read raise `Transient` when the store does not answer."""

    async def put(self, slips: Sequence[tuple[Slip, Version | None]]) -> Sequence[WriteResult]:
        """Write each over the version that was read, each for itself; None: it must not be there yet. The names differ."""
        ...

    async def get(self, slips: Sequence[str]) -> Mapping[str, StoredSlip]:
        """Realtime; a missing one is left out."""
        ...

    async def find(self, kind: str) -> Sequence[StoredSlip]:
        """Every slip of a kind by name, at most 10,000; up to a second old."""
        ...
