"""Tells the whole history of a case: the engine's log joined with the exception service's, in one order of time (paper P1, section 2).

What an engine knows of a case are its events; ours are in its history, another's are those that it reported. What the service knows are incidents, decisions, steps, orders with their answers, and
what people did by name. Neither tells the story alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.incident import Incident, StepMark, StepRecord
from forestay.domain.exlets.exlet_run import worklet_case
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.flows.flow_engine import FlowEngine, RunHistoryEvent
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.engines.engine_commands import ANSWER, ORDER, EngineCommands
from forestay.services.exceptions.engines.engine_event_intake import EVENT
from forestay.services.exceptions.record.audit_log import AuditLog

MOST = 10_000
"""Lines of a story that are looked at."""
MOST_INCIDENTS = 500
MOST_ENTRIES = 5_000
"""The newest entries of the audit log that are looked through."""
_ORDERED = ("event", "incident", "decision", "audit", "step", "order", "answer")
"""What comes first of the things that happened in the same millisecond."""


@dataclass(slots=True)
class RunTimeline:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    engine: FlowEngine | None
    engines: EngineCommands
    audit: AuditLog

    async def events(self, case: str) -> Sequence[RunHistoryEvent]:
        """What another engine reported of a case, the oldest first."""
        found = await self.store.find_records(kind=EVENT, job=case, limit=MOST)
        return [RunHistoryEvent(one.at, "event", {**one.body, "event": one.body["kind"]}) for one in found]

    async def story(self, case: str, *, tenant: str, started: int, ours: bool) -> Sequence[RunHistoryEvent]:
        """Everything that is known of a case, the oldest first; `ours`: it is one of our own engine's."""
        lines = list(await self._history(case) if ours else await self.events(case))
        page = await self.incidents.find(IncidentQuery(tenant=tenant, case=case), sort="at", limit=MOST_INCIDENTS)
        names = [one.standing.id for one in page.found]
        known = await self.incidents.get_incidents(names)
        standings = {one.standing.id: one.standing for one in page.found}
        for name, incident in known.items():
            lines += await self._incident(incident)
            standing = standings[name]
            told = {"incident": name, "state": standing.state.value, "item": incident.item, "reason": standing.note}
            if standing.n:
                lines.append(RunHistoryEvent(standing.changed, "standing", told))
        for kind, name in ((ORDER, "order"), (ANSWER, "answer")):
            found = await self.store.find_records(kind=kind, job=case, limit=1000)
            lines += [RunHistoryEvent(one.at, name, dict(one.body)) for one in found]
        lines += await self._audited(tenant, case, set(names), started)
        return sorted(lines, key=lambda one: (one.at, _place(one.kind)))[:MOST]

    async def _history(self, case: str) -> Sequence[RunHistoryEvent]:
        if self.engine is None:
            return ()
        lines: list[RunHistoryEvent] = []
        cursor: str | None = None
        while len(lines) < MOST:
            page = await self.engine.history(case, limit=1000, cursor=cursor)
            lines += page.happenings
            cursor = page.cursor
            if cursor is None:
                break
        return lines

    async def _incident(self, incident: Incident) -> Sequence[RunHistoryEvent]:
        finding: Any = incident.context.get("finding")
        why = finding.get("words", "") if isinstance(finding, Mapping) else ""
        about = {"incident": incident.id, "item": incident.item}
        seen = {"type": incident.kind.value, "cause": incident.cause, "reason": why, "attempt": incident.attempt}
        lines = [RunHistoryEvent(incident.at, "incident", about | seen)]
        for one in await self.incidents.decisions(incident.id):
            said = {"n": one.n, "verdict": one.verdict, "by": one.by, "reason": str(one.detail.get("words", ""))}
            lines.append(RunHistoryEvent(one.at, "decision", about | said))
        lines += [_step(incident, one) for one in await self.incidents.steps(incident.id)]
        return lines

    async def _audited(self, tenant: str, case: str, incidents: set[str], started: int) -> Sequence[RunHistoryEvent]:
        head = await self.audit.head(tenant)
        first = max(1, head.number - MOST_ENTRIES + 1)
        entries, _ = await self.audit.read(tenant, start=first, limit=MOST_ENTRIES)
        return [
            RunHistoryEvent(
                one.at, "audit", {"by": one.by, "what": one.what, "reason": one.why, "item": one.detail.get("item", "")}
            )
            for one in entries
            if one.at >= started and (one.on == case or one.detail.get("incident") in incidents)
        ]


def _step(incident: Incident, record: StepRecord) -> RunHistoryEvent:
    over = record.mark is StepMark.OVER
    facts: dict[str, Any] = {"incident": incident.id, "item": incident.item, "action": record.action, "over": over}
    if over:
        facts |= {"state": record.detail.get("state", ""), "reason": record.detail.get("detail", "")}
    if record.action == "compensate" and not over:
        facts["worklet"] = worklet_case(incident.id, record.n, record.step, 0)
    return RunHistoryEvent(record.at, "step", facts)


def _place(kind: str) -> int:
    return _ORDERED.index(kind) if kind in _ORDERED else -1 if kind != "standing" else len(_ORDERED)
