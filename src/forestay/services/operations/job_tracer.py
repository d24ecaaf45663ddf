"""Exports traces of jobs and of their incidents."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.exceptions.incidents.incident import Decision, Incident, StepMark, StepRecord
from forestay.domain.jobs.job_spans import (
    Span,
    TraceContext,
    context_of,
    incident_span,
    job_span,
    spans_of,
    submit_span,
)
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.ports.operations.traces import Traces
from forestay.services.jobs.job_submitter import NewJobListener
from forestay.services.shared.checked_writer import WriteListener

REMEMBER = 10_000
_WHOLE = 1 << 64


@dataclass(slots=True)
class JobTracer(WriteListener, NewJobListener):
    """The service: a listener to all writes of job documents."""

    traces: Traces
    clock: Clock
    share: float = 1.0
    """The share of exported traces among those that began here."""
    _told: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def created(self, jobs: Sequence[Stored]) -> None:
        """Jobs that were just accepted; some have been claimed in the same write."""
        now = self.clock.now()
        for stored in jobs:
            if self.wanted(context_of(stored.document)):
                self.traces.tell([submit_span(stored.document, until=now)])
                self.notice(stored)

    def notice(self, stored: Stored) -> None:
        document = stored.document
        if self._told.get(document.id) == document.rev or not self.wanted(context_of(document)):
            return
        self._told[document.id] = document.rev
        self._told.move_to_end(document.id)
        while len(self._told) > REMEMBER:
            self._told.popitem(last=False)
        self.traces.tell(spans_of(document))

    def wanted(self, context: TraceContext) -> bool:
        """Whether a trace is exported: as its initiator decided, or by its id, so that every process decides alike."""
        if context.parent:
            return context.sampled
        return int(context.trace[:16], 16) < self.share * _WHOLE


class TracedIncidentStore:
    """Wraps an incident store, and reports decisions and actions to traces."""

    def __init__(self, inner: IncidentStore, store: JobStore, jobs: JobTracer) -> None:
        self.inner = inner
        self.store = store
        self.jobs = jobs
        self._contexts: OrderedDict[str, tuple[Incident, TraceContext, str] | None] = OrderedDict()
        self._begun: OrderedDict[str, int] = OrderedDict()

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        added = await self.inner.add_decisions(decisions)
        await self._tell([decision for decision, new in zip(decisions, added, strict=True) if new])
        return added

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        added = await self.inner.add_steps(steps)
        for record in steps:
            if record.mark is StepMark.BEGUN:
                self._begun[f"{record.incident}:{record.n}:{record.step}"] = record.at
        while len(self._begun) > REMEMBER:
            self._begun.popitem(last=False)
        await self._tell([s for s, new in zip(steps, added, strict=True) if new and s.mark is StepMark.OVER])
        return added

    async def _tell(self, ones: Sequence[Decision | StepRecord]) -> None:
        for record in ones:
            try:
                known = await self._context(record.incident)
            except PortError:
                return  # a trace must not cause a failure
            if known is None:
                continue
            incident, context, parent = known
            more: dict[str, str | int | float] = {
                "forestay.incident": incident.id,
                "forestay.job": incident.job,
                "forestay.cause": incident.cause,
            }
            above = incident_span(incident.id)
            if isinstance(record, Decision):
                more |= {
                    "forestay.verdict": record.verdict,
                    "forestay.by": record.by,
                    "forestay.shadow": str(record.shadow).lower(),
                }
                spans = [_span(record.id, f"incident: {record.verdict}", context, above, record.at, record.at, more)]
                if record.n <= 1:
                    spans.append(Span("", f"incident {incident.kind.value}", context.trace, above, parent, incident.at,
                                      max(incident.at, record.at), more))  # fmt: skip
            else:
                began = self._begun.pop(f"{record.incident}:{record.n}:{record.step}", record.at)
                more |= {"forestay.action": record.action, "forestay.step": record.step}
                error = (
                    None
                    if record.detail.get("state") == "done"
                    else str(record.detail.get("detail", "it was not executed"))
                )
                spans = [_span(record.id, f"playbook: {record.action}", context, above, began, record.at, more, error)]
            self.jobs.traces.tell(spans)

    async def _context(self, name: str) -> tuple[Incident, TraceContext, str] | None:
        """The incident, its trace and the parent span; None: it is not exported."""
        if name in self._contexts:
            return self._contexts[name]
        incident = (await self.inner.get_incidents([name])).get(name)
        job = (
            (await self.store.get([incident.job])).get(incident.job) if incident is not None and incident.job else None
        )
        known = None
        if incident is not None and job is not None and self.jobs.wanted(context := context_of(job.document)):
            known = (incident, context, job_span(incident.job))
        self._contexts[name] = known
        while len(self._contexts) > REMEMBER:
            self._contexts.popitem(last=False)
        return known

    def __getattr__(self, name: str) -> Any:
        """All other methods are the store's own."""
        return getattr(self.inner, name)


def _span(
    key: str, name: str, context: TraceContext, parent: str, begin: int, end: int,
    attributes: Mapping[str, str | int | float], error: str | None = None,
) -> Span:  # fmt: skip
    return Span("", name, context.trace, incident_span(key), parent, min(begin, end), end, attributes, error)
