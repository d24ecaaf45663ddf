"""What was so when a job failed: its earlier attempts, failures of the last hour, whether its host is closed, and where its run stood.

It goes into the incident, so that a later replay decides by what was known then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.task_names import instance_of
from forestay.domain.rules.context import UNFILLED
from forestay.domain.scheduling.host_health import HostStatus, from_plain
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.services.exceptions.detect.external_values import ExternalValues
from forestay.services.flows.run_context import RUN_FIELDS, RunStates, run_context
from forestay.services.scheduling.host_health_tracker import document_of

HOUR = 3_600_000
FRESH = 2.0
"""Seconds that the counts of a tenant may be old: in a storm they are asked for again and again."""
TENANTS = 1_000
"""Tenants whose counts are remembered."""
JOBS = 100
"""Jobs whose earlier incidents are looked for at once."""
ATTEMPTS = 20
"""Earlier attempts of a job that are told, the last ones."""


class _LastHour(NamedTuple):
    """Failures of a tenant within the last hour, and its closed hosts."""

    by_cause: Mapping[str, int]
    by_flow: Mapping[str, int]
    by_owner: Mapping[str, int]
    closed: frozenset[str]


class PastFailures(NamedTuple):
    """What happened before to some jobs and in their tenants."""

    attempts: Mapping[str, Sequence[Mapping[str, object]]]
    """By job, the oldest first."""
    tenants: Mapping[str, _LastHour]
    runs: Mapping[str, Mapping[str, Any]]
    """What each run was at; a run whose engine did not answer is not here."""
    at: int
    external: Mapping[str, Mapping[str, object]]
    """What external sources told, by their names."""

    def told(self, document: JobDocument, cause: str, host: str) -> dict[str, Any]:
        """What rules may ask about the past of a failure."""
        before = self.attempts.get(document.id, ())
        hour = self.tenants[document.tenant]
        flow = document.flow_ref.flow if document.flow_ref is not None else ""
        history = {
            "same_cause": sum(1 for attempt in before if attempt.get("cause") == cause),
            "same_host": sum(1 for attempt in before if host and attempt.get("host") == host),
            "cause_1h": hour.by_cause.get(cause, 0),
            "flow_1h": hour.by_flow.get(flow, 0) if flow else 0,
            "owner_1h": hour.by_owner.get(document.owner, 0),
        }
        return {
            "attempts": list(before),
            "history": history,
            "host": {"name": host, "closed": host in hour.closed},
            "external": dict(self.external),
            **self._run(document),
        }

    def _run(self, document: JobDocument) -> dict[str, Any]:
        if document.flow_ref is None:
            return {}
        state = self.runs.get(document.flow_ref.run)
        if state is None:
            return {UNFILLED: list(RUN_FIELDS)}
        return run_context(state, self.at, instance=instance_of(document.flow_ref.work)[0])


@dataclass(slots=True)
class FailureHistory:
    """The service."""

    incidents: IncidentStore
    documents: DocumentStore
    runs: RunStates
    external: ExternalValues
    clock: Clock
    _hours: dict[str, tuple[float, _LastHour]] = field(default_factory=dict)

    async def before(self, documents: Sequence[JobDocument]) -> PastFailures:
        """What happened before these failures; what only other jobs can say may be seconds old."""
        attempts: dict[str, list[Mapping[str, object]]] = {}
        for tenant in dict.fromkeys(document.tenant for document in documents):
            again = sorted({job.id for job in documents if job.tenant == tenant and job.attempt > 1})
            for start in range(0, len(again), JOBS):
                attempts |= await self._attempts(tenant, again[start : start + JOBS])
        tenants = {document.tenant: await self._last_hour(document.tenant) for document in documents}
        names = dict.fromkeys(job.flow_ref.run for job in documents if job.flow_ref is not None)
        states, external = await asyncio.gather(self.runs.ask(names), self.external.values())
        return PastFailures(attempts, tenants, states, self.clock.now(), external)

    async def _attempts(self, tenant: str, jobs: Sequence[str]) -> Mapping[str, list[Mapping[str, object]]]:
        query = IncidentQuery(tenant=tenant, kind=ExceptionType.ABORT.value, jobs=frozenset(jobs))
        page = await self.incidents.find(query, sort="-at", limit=MAX_FOUND)
        last: dict[str, list[str]] = {}
        for stored in page.statuses:
            names = last.setdefault(stored.status.job, [])
            if len(names) < ATTEMPTS:
                names.append(stored.status.id)
        known = await self.incidents.get_incidents([name for names in last.values() for name in names])
        return {
            job: [_attempt(known[name]) for name in reversed(names) if name in known] for job, names in last.items()
        }

    async def _last_hour(self, tenant: str) -> _LastHour:
        at = self.clock.monotonic()
        known = self._hours.get(tenant)
        if known is not None and at - known[0] < FRESH:
            return known[1]
        query = IncidentQuery(tenant=tenant, kind=ExceptionType.ABORT.value, since=self.clock.now() - HOUR)
        hour = _LastHour(
            await self.incidents.count(query, by="cause"),
            await self.incidents.count(query, by="flow"),
            await self.incidents.count(query, by="owner"),
            await self._closed_hosts(tenant),
        )
        if len(self._hours) >= TENANTS:
            self._hours.clear()
        self._hours[tenant] = (at, hour)
        return hour

    async def _closed_hosts(self, tenant: str) -> frozenset[str]:
        name = document_of(tenant)
        stored = (await self.documents.get([name])).get(name)
        healths = from_plain(stored.document.body) if stored is not None else {}
        return frozenset(host for host, health in healths.items() if health.status is not HostStatus.OPEN)


def _attempt(incident: Incident) -> Mapping[str, object]:
    evidence = incident.context.get("evidence")
    told: Mapping[str, object] = evidence if isinstance(evidence, Mapping) else {}
    return {
        "attempt": incident.attempt,
        "at": incident.at,
        "cause": incident.cause,
        "host": told.get("node", ""),
        "exit_code": told.get("exit_code"),
        "signal": told.get("signal"),
    }
