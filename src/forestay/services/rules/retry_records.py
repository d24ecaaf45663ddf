"""Counts the outcomes of an error's retried failures: one search and one read by ids, over a bounded number of incidents."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.domain.rules.retry_record import RetryRecord, retry_record
from forestay.ports.errors import PortError
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore

MOST = 100
"""The most incidents that are counted, newest first."""


@dataclass(frozen=True, slots=True)
class RetryRecords:
    """The service."""

    incidents: IncidentStore
    store: JobStore

    async def of(self, status: IncidentStatus) -> RetryRecord | None:
        """The record of an incident's error at its site, itself included; None: it has no fingerprint, or it cannot be counted now. Never raises: a mere display must not hide the rest."""
        if not status.fingerprint:
            return None
        query = IncidentQuery(
            tenant=status.tenant,
            kind=status.kind.value,
            fingerprint=status.fingerprint,
            # Where the site is unknown, the incidents of all sites count.
            site=status.site or None,
        )
        try:
            page = await self.incidents.find(query, sort="-at", limit=MOST)
            statuses = {stored.status.id: stored.status for stored in page.statuses} | {status.id: status}
            names = sorted({found.job for found in statuses.values() if found.job})
            jobs = await self.store.get(names) if names else {}
        except PortError:
            return None
        documents = {name: stored.document for name, stored in jobs.items()}
        return retry_record(statuses.values(), documents, whole=page.cursor is None)
