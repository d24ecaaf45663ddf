"""The history of a run: the engine's log merged with that of the exception service, in the order of time (paper P1, section 2).

An engine knows the events of a run: for our engine they are in its history, for another engine those that it reported. The service knows incidents,
decisions, steps, orders with their answers, and people's actions by name. Neither is complete alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.incident import Incident, StepMark, StepRecord
from forestay.domain.flows.execution.run_names import run_of
from forestay.domain.peers.placing import Placing, PlacingState
from forestay.domain.playbooks.playbook_run import worklet_run
from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.flows.flow_engine import FlowEngine, RunHistoryEvent
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.engines.engine_commands import ANSWER, ORDER, EngineCommands
from forestay.services.exceptions.engines.engine_event_intake import EVENT
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.flows.placed_runs import placings

MOST = 10_000
"""The most lines of a story that are read."""
PLACED = "place_run"
"""The kind of an event in which a sub-flow that may run in another domain is placed."""
MOST_INCIDENTS = 500
MOST_ENTRIES = 5_000
"""The most entries of the audit log that are searched, newest first."""
_ORDERED = ("event", "incident", "decision", "audit", "step", "order", "answer")
"""The order of entries of the same millisecond."""


@dataclass(slots=True)
class RunTimeline:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    engine: FlowEngine | None
    engines: EngineCommands
    audit: AuditLog
    documents: DocumentStore

    async def events(self, run: str, *, tenant: str) -> Sequence[RunHistoryEvent]:
        """The events of a run that another engine reported, oldest first."""
        records = await self.store.find_records(kind=EVENT, job=run, tenant=tenant, limit=MOST)
        return [
            RunHistoryEvent(record.at, "event", {**record.body, "event": record.body["kind"]}) for record in records
        ]

    async def story(self, run: str, *, tenant: str, started: int, ours: bool) -> Sequence[RunHistoryEvent]:
        """The complete history of a run, oldest first; `ours`: it is a run of our own engine."""
        lines = list(await self._history(run) if ours else await self.events(run, tenant=tenant))
        page = await self.incidents.find(IncidentQuery(tenant=tenant, run=run), sort="at", limit=MOST_INCIDENTS)
        names = [stored.status.id for stored in page.statuses]
        known = await self.incidents.get_incidents(names)
        statuses = {stored.status.id: stored.status for stored in page.statuses}
        for name, incident in known.items():
            lines += await self._incident(incident)
            status = statuses[name]
            facts = {"incident": name, "state": status.state.value, "task": incident.instance, "reason": status.note}
            if status.n:
                lines.append(RunHistoryEvent(status.changed, "status", facts))
        for kind, name in ((ORDER, "order"), (ANSWER, "answer")):
            records = await self.store.find_records(kind=kind, job=run, tenant=tenant, limit=1000)
            lines += [RunHistoryEvent(record.at, name, dict(record.body)) for record in records]
        lines += await self._audited(tenant, run, set(names), started)
        return sorted(lines, key=lambda line: (line.at, _place(line.kind)))[:MOST]

    async def _history(self, run: str) -> Sequence[RunHistoryEvent]:
        if self.engine is None:
            return ()
        lines: list[RunHistoryEvent] = []
        cursor: str | None = None
        while len(lines) < MOST:
            page = await self.engine.history(run, limit=1000, cursor=cursor)
            lines += page.happenings
            cursor = page.cursor
            if cursor is None:
                break
        return await self._placed(run, lines)

    async def _placed(self, run: str, lines: Sequence[RunHistoryEvent]) -> Sequence[RunHistoryEvent]:
        """The lines, with the domain in which each sub-flow that may run elsewhere runs or ran."""
        runs = [_sub_flow_run(run, line.facts) if line.kind == PLACED else "" for line in lines]
        places = await placings(self.documents, sorted({name for name in runs if name}))
        return [
            line if name not in places else line._replace(facts={**line.facts, **_place_of(places[name])})
            for name, line in zip(runs, lines, strict=True)
        ]

    async def _incident(self, incident: Incident) -> Sequence[RunHistoryEvent]:
        finding: Any = incident.context.get("finding")
        why = finding.get("words", "") if isinstance(finding, Mapping) else ""
        about = {"incident": incident.id, "task": incident.instance}
        seen = {"type": incident.kind.value, "cause": incident.cause, "reason": why, "attempt": incident.attempt}
        lines = [RunHistoryEvent(incident.at, "incident", about | seen)]
        for other_decision in await self.incidents.decisions(incident.id):
            decision = {
                "n": other_decision.n,
                "verdict": other_decision.verdict,
                "by": other_decision.by,
                "reason": str(other_decision.detail.get("words", "")),
            }
            lines.append(RunHistoryEvent(other_decision.at, "decision", about | decision))
        lines += [_step(incident, step) for step in await self.incidents.steps(incident.id)]
        return lines

    async def _audited(self, tenant: str, run: str, incidents: set[str], started: int) -> Sequence[RunHistoryEvent]:
        head = await self.audit.head(tenant)
        first = max(1, head.number - MOST_ENTRIES + 1)
        entries, _ = await self.audit.read(tenant, start=first, limit=MOST_ENTRIES)
        return [
            RunHistoryEvent(
                entry.at,
                "audit",
                {"by": entry.by, "what": entry.what, "reason": entry.why, "task": entry.detail.get("task", "")},
            )
            for entry in entries
            if entry.at >= started and (entry.on == run or entry.detail.get("incident") in incidents)
        ]


def _sub_flow_run(run: str, facts: Mapping[str, Any]) -> str:
    """The run that was requested of a sub-flow; empty if the event does not say which."""
    command = facts.get("command") or {}
    work = (command.get("order") or {}).get("work")
    return run_of(run, str(work), int(command.get("index") or 0)) if work else ""


def _place_of(placing: Placing) -> dict[str, Any]:
    chosen = placing.state is PlacingState.CHOSEN
    return {"domain": placing.at, "chosen": chosen, "left": [name for name in placing.tried if name != placing.at]}


def _step(incident: Incident, record: StepRecord) -> RunHistoryEvent:
    over = record.mark is StepMark.OVER
    facts: dict[str, Any] = {"incident": incident.id, "task": incident.instance, "action": record.action, "over": over}
    if over:
        facts |= {"state": record.detail.get("state", ""), "reason": record.detail.get("detail", "")}
    if record.action == "compensate" and not over:
        facts["worklet"] = worklet_run(incident.id, record.n, record.step, 0)
    return RunHistoryEvent(record.at, "step", facts)


def _place(kind: str) -> int:
    return _ORDERED.index(kind) if kind in _ORDERED else -1 if kind != "status" else len(_ORDERED)
