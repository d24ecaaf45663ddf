"""Determines why an attempt failed: its evidence, the cause, earlier failures, the state of its run, and the incident that stores all of it.

The incident has the whole context of the decision, so that a later replay decides by what was known then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from forestay.domain.exceptions.causes.cause import CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.pilot_finding import (
    execution_failure,
    needs_container,
    no_container_anywhere,
)
from forestay.domain.exceptions.causes.taught_pattern import is_taught
from forestay.domain.exceptions.evidence.evidence import Evidence, evidence_of
from forestay.domain.exceptions.evidence.redaction import redacted_value
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, failure_event, failure_incident_id, with_fingerprint
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.domain.jobs.container_image import wanted_runtimes
from forestay.domain.jobs.job_document import JobDocument, instance_of, task_of
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.pilots.pilot import PilotState, carries, without_containers
from forestay.domain.rules.context import UNFILLED
from forestay.domain.scheduling.host_health import HostStatus, from_plain
from forestay.formats.jobs.job_public import job_public
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json
from forestay.ports.clock import Clock
from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.exceptions.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.exceptions.detect.external_values import ExternalValues
from forestay.services.exceptions.exception_event import fitting
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.run_context import RUN_FIELDS, RunStates, run_context
from forestay.services.pilots.batch_status import BatchStatus
from forestay.services.scheduling.host_health_tracker import document_of
from forestay.services.shared.recent import Recent

READERS = 16
"""Logs that are read at the same time."""
MAX_AVOIDED = 32
"""Hosts without a container runtime that a job avoids."""
OF_TASKS = frozenset({"apptainer"})
"""The runtimes for the executors of TES tasks, whose need for one only the pilot sees."""
FLEET_FRESH = 5_000
"""Milliseconds for which the pilots' advertised features are cached: many tasks may fail at once."""
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
    site: str = ""
    """The site of the attempt's pilot."""


@dataclass(slots=True)
class FailureDetector:
    """The service."""

    store: JobStore
    pilots: PilotStore
    """Provides the site of a pilot."""
    batch: BatchStatus
    """Provides the ends of the batch jobs of lost pilots."""
    classifiers: CauseClassifiers
    history: FailureHistory
    flows: FlowStore
    _sites: dict[str, str] = field(default_factory=dict)
    _lacking: dict[tuple[str, frozenset[str]], tuple[int, frozenset[str] | None]] = field(default_factory=dict)
    """By tenant and suitable runtimes: when its pilots were read, and which of their hosts have no such runtime; None: no host has one."""

    async def detect(self, document: JobDocument, log_tail: str, past: PastFailures, now: int) -> FailedAttempt:
        """The result of the last attempt of a faulted job; `log_tail`: the last lines that it printed, `past`: its entry from `history`."""
        evidence = evidence_of(document, log_tail)
        if evidence.lost:
            evidence = await self.batch.joined(document, evidence)
        finding = await self.classifiers.find_cause(document, evidence)
        avoid: tuple[str, ...] = ()
        if document.last is not None and needs_container(document.last):
            finding, avoid = await self._container_finding(document, document.last.host, finding, now)
        elif finding.retry is RetryNeed.ELSEWHERE and evidence.node and is_taught(finding.pattern):
            # The author of the pattern said that a retry needs another host.
            avoid = (evidence.node,)
        finding = with_verdict(finding, evidence)
        site = await self.site_of(document)
        incident = failure_incident(
            document,
            evidence,
            finding,
            now,
            # By name: rule sets apply to all versions of a flow.
            flow=await self.flows.name_of(document) if document.flow_ref is not None else "",
            site=site,
            past=past.told(document, finding.cause.value, evidence.node),
        )
        return FailedAttempt(document, evidence, finding, incident, avoid, site)

    async def _container_finding(
        self, document: JobDocument, host: str, finding: CauseFinding, now: int
    ) -> tuple[CauseFinding, tuple[str, ...]]:
        """The finding and the hosts to avoid: a retry helps only where another pilot can run containers."""
        tenant = document.tenant
        wanted = wanted_runtimes(document.extra) or OF_TASKS
        at, lacking = self._lacking.get((tenant, wanted), (0, None))
        if now - at > FLEET_FRESH:
            alive = await self.pilots.find_pilots(tenant=tenant, state=PilotState.ALIVE.value)
            lacking = without_containers([pilot for pilot in alive if carries(pilot, "")], wanted)
            if len(self._lacking) > REMEMBERED:
                self._lacking.clear()
            self._lacking[tenant, wanted] = now, lacking
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
        for record in await self.store.find_records(
            kind="evidence", job=document.id, tenant=document.tenant, newest_first=True, limit=20
        ):
            ending = record.body.get("ending")
            if isinstance(ending, Mapping) and ending.get("claim") == last.claim:
                return str(record.body.get("log_tail", ""))
        return ""

    async def site_of(self, document: JobDocument) -> str:
        """The site of the last attempt's pilot; empty if unknown."""
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
    """The pilot of the attempt, from the job's story; empty if no longer known."""
    return next((line.by for line in reversed(document.history) if line.event == Event.CLAIM), "")


HOUR = 3_600_000
FRESH = 2.0
"""The greatest age in seconds of a tenant's counts: a storm requests them again and again."""
TENANTS = 1_000
"""Tenants whose counts are remembered."""
JOBS = 100
"""Jobs whose earlier incidents are searched at once."""
ATTEMPTS = 20
"""The most earlier attempts of a job in the context; the last ones."""


class _LastHour(NamedTuple):
    """Failures of a tenant within the last hour, and its closed hosts."""

    by_cause: Mapping[str, int]
    by_flow: Mapping[str, int]
    by_owner: Mapping[str, int]
    closed: frozenset[str]


class PastFailures(NamedTuple):
    """Earlier failures of some jobs and in their tenants."""

    attempts: Mapping[str, Sequence[Mapping[str, object]]]
    """By job, oldest first."""
    tenants: Mapping[str, _LastHour]
    runs: Mapping[str, Mapping[str, Any]]
    """The state of each run, except runs whose engine did not answer."""
    at: int
    external: Mapping[str, Mapping[str, object]]
    """The values of external sources, by their names."""

    def told(self, document: JobDocument, cause: str, host: str) -> dict[str, Any]:
        """The facts about a failure's past that rules can use."""
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
    _hours: Recent[str, tuple[float, _LastHour]] = field(default_factory=lambda: Recent(TENANTS))

    async def before(self, documents: Sequence[JobDocument]) -> PastFailures:
        """The past of these failures; facts about other jobs may be seconds old."""
        attempts: dict[str, list[Mapping[str, object]]] = {}
        for tenant in dict.fromkeys(document.tenant for document in documents):
            again = sorted({job.id for job in documents if job.tenant == tenant and job.attempt > 1})
            for start in range(0, len(again), JOBS):
                attempts |= await self._attempts(tenant, again[start : start + JOBS])
        tenants = {document.tenant: await self._last_hour(document.tenant) for document in documents}
        names = dict.fromkeys(job.flow_ref.run for job in documents if job.flow_ref is not None)
        states: Mapping[str, Mapping[str, Any]] = {}
        external: Mapping[str, Mapping[str, object]] = {}
        if names or self.external.sources:
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
            *await asyncio.gather(
                self.incidents.count(query, by="cause"),
                self.incidents.count(query, by="flow"),
                self.incidents.count(query, by="owner"),
                self._closed_hosts(tenant),
            )
        )
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


LOG_KEPT = 16_000
"""Characters of the log that are stored in the incident and seen by rules; the evidence beside the attempt may have more."""
PARAMETERS_KEPT = 4_000
"""Bytes of a job's parameters as JSON that are stored in the incident; larger ones are left out."""
KEPT = (
    "name", "labels", "patterns", "resources", "priority", "attempt", "generation", "failures", "releases", "max_attempts", "index",
    "team",
)  # fmt: skip


def failure_incident(
    document: JobDocument,
    evidence: Evidence,
    finding: CauseFinding,
    now: int,
    *,
    flow: str = "",
    site: str = "",
    past: Mapping[str, object] | None = None,
) -> Incident:
    """The incident of a faulted job's last attempt: the same one in every process. `flow` is the flow's name, `past` the result of `PastFailures.told`."""
    flow_ref, event = document.flow_ref, failure_event(document)
    run = flow_ref.run if flow_ref is not None else ""
    instance, round_ = instance_of(flow_ref.work) if flow_ref is not None else ("", 0)
    told = evidence_to_json(evidence)
    if "log_tail" in told:
        told["log_tail"] = told["log_tail"][-LOG_KEPT:]
    if evidence.more:
        told["more"] = redacted_value(dict(evidence.more))
    shown = job_public(document)
    moment = datetime.fromtimestamp(now / 1000, UTC)
    context: dict[str, Any] = {
        "job": {name: shown[name] for name in KEPT} | _more(document, now),
        "evidence": told,
        "finding": finding_to_json(finding),
        "failure": execution_failure(evidence.stage, finding.cause).value,
        "exception": {"type": ExceptionType.ABORT.value, "task": task_of(instance)},
        "host": {"name": evidence.node},
        "site": {"name": site},
        "now": {"hour": moment.hour, "weekday": moment.isoweekday()},
        **(past or {}),
    }
    if flow_ref is not None:
        found: dict[str, Any] = {"id": run, "flow": flow, "version": flow_ref.flow, "depth": len(flow_ref.above)}
        context["run"] = context.get("run", {}) | found
        context["task"] = context.get("task", {}) | {"name": instance, "round": round_}
    kind = ExceptionType.ABORT
    incident = Incident(
        id=failure_incident_id(document),
        tenant=document.tenant,
        owner=document.owner,
        kind=kind,
        at=now,
        run=run,
        instance=instance,
        job=document.id,
        attempt=document.attempt,
        event=event,
        cause=str(finding.cause),
        flow=flow_ref.flow if flow_ref is not None else "",
        round=round_,
        context=fitting(context),
    )
    return with_fingerprint(incident)


def _more(document: JobDocument, now: int) -> dict[str, Any]:
    """Further facts for rules beside those shown of a job, so that a replay decides by the same facts."""
    more: dict[str, Any] = {
        "age": max(0.0, (now - document.created) / 1000),
        "when_exhausted": document.retry.when_exhausted.value,
    }
    parameters = dict(document.parameters)
    return more | ({"parameters": parameters} if len(json.dumps(parameters)) <= PARAMETERS_KEPT else {})
