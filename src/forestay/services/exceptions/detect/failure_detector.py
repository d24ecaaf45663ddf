"""Detects why a job's attempt failed: what it left behind, the cause, and the incident that holds both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.causes.attempt_evidence import evidence_of, find_cause
from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.pilot_finding import needs_container, no_container_anywhere
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.pilots.pilot import PilotState, carries, without_containers
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.exceptions.detect.failure_history import FailureHistory, PastFailures
from forestay.services.exceptions.detect.failure_incident import failure_incident
from forestay.services.flows.flow_store import FlowStore
from forestay.services.pilots.batch_status import BatchStatus

READERS = 16
"""Logs that are read at the same time."""
MAX_AVOIDED = 32
"""Hosts without a container runtime that a job avoids."""
FLEET_FRESH = 5_000
"""Milliseconds for which what pilots said of themselves is used again: many tasks may fail at once."""
REMEMBERED = 20_000
"""Pilots whose site is remembered."""


class FailedAttempt(NamedTuple):
    """A failed attempt and why it failed."""

    document: JobDocument
    evidence: Evidence
    finding: CauseFinding
    incident: Incident
    avoid: tuple[str, ...] = ()
    """Hosts that cannot run the job."""


@dataclass(slots=True)
class FailureDetector:
    """The service."""

    store: JobStore
    pilots: PilotStore
    """Says through which site a pilot came."""
    batch: BatchStatus
    """Says how the batch jobs of lost pilots ended."""
    classifiers: CauseClassifiers
    history: FailureHistory
    flows: FlowStore
    _sites: dict[str, str] = field(default_factory=dict)
    _lacking: dict[str, tuple[int, frozenset[str] | None]] = field(default_factory=dict)
    """Of a tenant: when its pilots were read, and which of their hosts have no container runtime; None: none has."""

    async def detect(self, document: JobDocument, log_tail: str, past: PastFailures, now: int) -> FailedAttempt:
        """What the last attempt of a faulted job came to; `log_tail`: the last lines that it printed, `past`: what `history` says of it."""
        evidence = await self.batch.joined(document, evidence_of(document, log_tail))
        finding = find_cause(document, evidence, await self.classifiers.classifier())
        avoid: tuple[str, ...] = ()
        if document.last is not None and needs_container(document.last):
            finding, avoid = await self._container_finding(document.tenant, document.last.host, finding, now)
        incident = failure_incident(
            document,
            evidence,
            finding,
            now,
            # By its name: rule sets are of all versions of a flow.
            flow=await self.flows.name_of(document),
            site=await self.site_of(document),
            past=past.told(document, finding.cause.value, evidence.node),
        )
        return FailedAttempt(document, evidence, finding, incident, avoid)

    async def _container_finding(
        self, tenant: str, host: str, finding: CauseFinding, now: int
    ) -> tuple[CauseFinding, tuple[str, ...]]:
        """A retry helps only where another pilot can run containers; it then avoids those that cannot."""
        at, lacking = self._lacking.get(tenant, (0, None))
        if now - at > FLEET_FRESH:
            alive = await self.pilots.find_pilots(tenant=tenant, state=PilotState.ALIVE.value)
            lacking = without_containers([pilot for pilot in alive if carries(pilot, "")])
            if len(self._lacking) > REMEMBERED:
                self._lacking.clear()
            self._lacking[tenant] = now, lacking
        if lacking is None:
            return no_container_anywhere(), ()
        return finding, tuple(sorted({*sorted(lacking)[: MAX_AVOIDED - 1], host} - {""}))

    async def read_logs(self, jobs: Sequence[Stored]) -> Sequence[tuple[Stored, str]]:
        """Faulted jobs, each with the last lines that its attempt printed."""
        printed: list[str] = []
        for start in range(0, len(jobs), READERS):
            some = jobs[start : start + READERS]
            printed += await asyncio.gather(*(self._printed(stored.document) for stored in some))
        return list(zip(jobs, printed, strict=True))

    async def _printed(self, document: JobDocument) -> str:
        last = document.last
        if last is None:
            return ""
        for record in await self.store.find_records(kind="evidence", job=document.id, newest_first=True, limit=20):
            ending = record.body.get("ending")
            if isinstance(ending, Mapping) and ending.get("claim") == last.claim:
                return str(record.body.get("log_tail", ""))
        return ""

    async def site_of(self, document: JobDocument) -> str:
        """The site that the last attempt's pilot came through; empty if nobody knows."""
        pilot = _pilot_of(document)
        if not pilot:
            return ""
        if pilot not in self._sites:
            if len(self._sites) > REMEMBERED:
                self._sites.clear()
            stored = await self.pilots.get_pilot(pilot)
            self._sites[pilot] = stored.pilot.site if stored is not None else ""
        return self._sites[pilot]


def _pilot_of(document: JobDocument) -> str:
    """The pilot whose attempt it was, as the job's story has it; empty if nobody knows any more."""
    return next((line.by for line in reversed(document.history) if line.event == Event.CLAIM), "")
