"""What an adapter must offer to be put to the contract: a room for one test's data.

The tests know nothing of adapters. To test another one, write a `Room` for it and a fixture `room` that gives it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.audit import AuditStore
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.pilots.pilot_store import PilotStore


class Stores(NamedTuple):
    """The stores of one adapter instance; opening and closing the job store does so for all."""

    jobs: JobStore
    pilots: PilotStore
    documents: DocumentStore
    incidents: IncidentStore
    audit: AuditStore


class Room(Protocol):
    """A place for data that no other test sees."""

    def stores(self) -> Stores:
        """One more instance of the adapter over the same data, as another process would have; not opened yet."""
        ...

    def unreachable(self) -> Stores:
        """An instance whose store does not answer."""
        ...

    async def clear(self) -> None:
        """Remove the data."""
        ...
