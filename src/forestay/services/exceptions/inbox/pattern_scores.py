"""The scoreboard of taught patterns: how many failures each has classified, and the outcome of those that were retried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import RetryNeed
from forestay.domain.exceptions.causes.taught_pattern import TaughtPattern
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import IncidentStatus, as_judged, deciding_pattern
from forestay.domain.rules.retry_record import RetryRecord, retry_record
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore

MOST = 2_000
"""The most failures of one cause that are counted, newest first."""
ENOUGH = 3
"""The least number of retries after which a pattern can be rated."""


class PatternScore(NamedTuple):
    """A pattern and its results."""

    pattern: TaughtPattern
    record: RetryRecord

    @property
    def loses(self) -> bool:
        """Whether the pattern says that a retry helps, although most retries did not."""
        tried, helped = self.record.retried, self.record.helped
        return self.pattern.retry is not RetryNeed.NO and tried >= ENOUGH and 2 * helped < tried


@dataclass(frozen=True, slots=True)
class PatternScores:
    """The service."""

    incidents: IncidentStore
    store: JobStore

    async def of(self, tenant: str, patterns: Sequence[TaughtPattern]) -> Sequence[PatternScore]:
        """The score of each, in their order, over the newest failures of their causes since they were taught."""
        named: dict[str, list[IncidentStatus]] = {}
        partial: set[str] = set()
        for cause in sorted({pattern.cause.value for pattern in patterns}):
            statuses, whole = await self._failures(tenant, cause)
            names = await self._names(statuses)
            for status in statuses:
                named.setdefault(names.get(status.fingerprint, ""), []).append(status)
            partial |= set() if whole else {cause}
        jobs = sorted({status.job for pattern in patterns for status in named.get(pattern.name, ()) if status.job})
        documents = {name: stored.document for name, stored in (await self.store.get(jobs)).items()} if jobs else {}
        return [
            PatternScore(
                pattern,
                retry_record(named.get(pattern.name, ()), documents, whole=pattern.cause.value not in partial),
            )
            for pattern in patterns
        ]

    async def _failures(self, tenant: str, cause: str) -> tuple[Sequence[IncidentStatus], bool]:
        query = IncidentQuery(tenant, kind=ExceptionType.ABORT.value, cause=cause)
        statuses: list[IncidentStatus] = []
        cursor: str | None = None
        while len(statuses) < MOST:
            page = await self.incidents.find(query, limit=MAX_FOUND, cursor=cursor)
            statuses += [stored.status for stored in page.statuses]
            cursor = page.cursor
            if cursor is None:
                return statuses, True
        return statuses, False

    async def _names(self, statuses: Sequence[IncidentStatus]) -> Mapping[str, str]:
        """The deciding pattern, by fingerprint: failures of one fingerprint have the same message, so the newest of each is read."""
        newest: dict[str, IncidentStatus] = {}
        for status in statuses:
            newest.setdefault(status.fingerprint, status)
        incidents = await self.incidents.get_incidents([status.id for status in newest.values()]) if newest else {}
        return {
            name: deciding_pattern(as_judged(incidents[status.id], status))
            for name, status in newest.items()
            if status.id in incidents
        }
