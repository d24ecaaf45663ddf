"""Reads which failures recovered, by what came of their jobs.

That an incident is complete only says that it was answered: its job may have been cancelled or forced, or have failed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import IncidentStatus
from forestay.domain.rules.incident_outcome import OutcomeKind, faulted_job_came
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore

_RECOVERED = frozenset({OutcomeKind.RECOVERED, OutcomeKind.BY_HAND})


class Recovered(NamedTuple):
    """The failures that recovered, of those that were looked at."""

    statuses: Sequence[IncidentStatus]
    whole: bool
    """All were looked at; otherwise only those whose status changed last."""


@dataclass(frozen=True, slots=True)
class RecoveredFailures:
    """The service."""

    incidents: IncidentStore
    store: JobStore

    async def find(self, query: IncidentQuery) -> Recovered:
        """Of at most `MAX_FOUND` incidents those whose job succeeded, by itself or after a person's action. One without a job recovered if it was answered."""
        page = await self.incidents.find(query, sort="-changed", limit=MAX_FOUND)
        statuses = [stored.status for stored in page.statuses]
        names = sorted({status.job for status in statuses if status.job})
        jobs = await self.store.get(names) if names else {}
        well = {name for name, stored in jobs.items() if faulted_job_came(stored.document)[0] in _RECOVERED}
        recovered = [status for status in statuses if not status.job or status.job in well]
        return Recovered(recovered, page.cursor is None)
