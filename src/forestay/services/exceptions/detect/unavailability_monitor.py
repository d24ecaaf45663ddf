"""Raises a resource exception for jobs that no live pilot can run (paper P1): none offers their resources, or none accepts jobs of their kind.

Jobs of one task's round are one exception: a waiting scatter of a million is a single problem. It is raised once for each round, or for a client's job
once for each attempt, with the missing resources and the pilot that comes nearest; when a pilot claims the job after all, the incident in the inbox is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.jobs.job_document import JobDocument, State, downstream_of
from forestay.domain.jobs.resources import fits, resource_class
from forestay.domain.pilots.pilot import Pilot, PilotState, carries
from forestay.domain.scheduling.too_small import lacking
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.exceptions.record.decision_log import StatusChange
from forestay.services.flows.flow_store import FlowStore
from forestay.services.jobs.job_context import job_context, place_of
from forestay.services.shared.quarantine import Quarantine

KIND = ExceptionType.RESOURCE_UNAVAILABLE
MOST = 1000
"""The most waiting jobs that are checked in one pass, the longest waiting first."""
MOVING = frozenset(set(State) - {State.AVAILABLE})


@dataclass(slots=True)
class UnavailabilityMonitor:
    """The service; incidents are create-only, so any number of these may run."""

    store: JobStore
    pilots: PilotStore
    pipeline: ExceptionPipeline
    flows: FlowStore
    clock: Clock
    patience: float = 1800.0
    """Seconds that a job may wait before the exception is raised."""
    every: float = 15.0
    troubled: Callable[[str], None] = lambda _text: None
    raised: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _told: set[str] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            try:
                await self.look()
                await self.close()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(self.every)

    async def look(self) -> None:
        """Raise the exception for all jobs that have waited too long."""
        await self.pipeline.decider.get_ready()
        now = self.clock.now()
        before = now - round(1000 * self.patience)
        query = JobQuery(
            states=frozenset({State.AVAILABLE}), held=False, at_most={"changed": before, "not_before": before}
        )
        page = await self.store.search(query, sort="changed", limit=MOST)
        groups: dict[tuple[str, ...], JobDocument] = {}
        for stored in page.jobs:
            document = stored.document
            flow_ref = document.flow_ref
            key = (
                (document.tenant, flow_ref.run, flow_ref.work)
                if flow_ref is not None
                else (document.tenant, document.id)
            )
            groups.setdefault(key, document)
        if not groups:
            self._told = set()
            return
        alive = await self.pilots.find_pilots(state=PilotState.ALIVE.value)
        moving: dict[tuple[str, str], bool] = {}
        fresh: list[ExceptionEvent] = []
        ids: set[str] = set()

        async def look_at(document: JobDocument) -> None:
            able = [
                pilot for pilot in alive if pilot.tenant == document.tenant and carries(pilot, downstream_of(document))
            ]
            event = await self._raise(document, able, moving, now)
            if event is not None:
                ids.add(event.id)
                fresh.extend([] if event.id in self._told else [event])

        later = await self.quarantine.each(
            groups.values(), look_at, name=lambda document: f"job {document.id}", troubled=self.troubled
        )
        if later is not None:
            raise later
        self.raised += sum(not exception.ignored for exception in await self.pipeline.handle(fresh))
        self._told = ids

    async def _raise(
        self, document: JobDocument, pilots: Sequence[Pilot], moving: dict[tuple[str, str], bool], now: int
    ) -> ExceptionEvent | None:
        place, flow_ref = place_of(document), document.flow_ref
        name = await self.flows.name_of(document)
        if not self.pipeline.decider.wanted(document.tenant, name, KIND, place.get("task", "")):
            return None
        need = document.resources
        fitting = [pilot for pilot in pilots if fits(need, pilot.resources)]
        if fitting:
            kind = (document.tenant, resource_class(need))
            if kind not in moving:
                moving[kind] = await self._moves(*kind, now)
            if moving[kind]:
                return None  # it waits its turn
        waited = (now - max(document.changed, document.not_before)) / 1000
        more: dict[str, Any] = {
            "why": "no pilot takes jobs of this kind" if fitting else "no pilot offers what it needs",
            "waited": waited,
            "pilots": len(pilots),
            "fitting": len(fitting),
        }
        if pilots and not fitting:
            nearest = min(pilots, key=lambda pilot: len(lacking(need, pilot.resources)))
            more |= {"missing": lacking(need, nearest.resources)}
            more |= {"nearest": {"pilot": nearest.id, "host": nearest.host, "site": nearest.site}}
        context = job_context(document, now)
        context["evidence"] = {"more": more}
        context["site"] = {"pilots": len(pilots)}
        event = f"round-{flow_ref.work}" if flow_ref is not None else f"attempt-{document.attempt}"
        if flow_ref is not None:
            # One exception for all jobs of a scatter, whichever of them waits the longest.
            place |= {"attempt": 0} if document.index is None else {"attempt": 0, "job": ""}
        return ExceptionEvent(
            KIND,
            document.tenant,
            document.owner,
            event,
            now,
            flow_name=name,
            cause="scheduler",
            context=context,
            **place,
        )

    async def _moves(self, tenant: str, kind: str, now: int) -> bool:
        """Whether pilots have recently claimed any such job: then the others only wait their turn."""
        lately = {"changed": now - round(1000 * self.patience)}
        query = JobQuery(tenant=tenant, states=MOVING, anyof={"resource_class": (kind,)}, at_least=lately)
        return bool(await self.store.count(query, by="tenant"))

    async def close(self) -> None:
        """Close held incidents whose job was claimed after all."""
        incidents = self.pipeline.incidents
        query = IncidentQuery(kind=KIND.value, states=frozenset({IncidentState.HELD}))
        page = await incidents.find(query, sort="at", limit=200)
        names = [stored.status.job for stored in page.statuses if stored.status.job]
        jobs = await self.quarantine.readable(self.store.get, names, self.troubled)
        for other_stored in page.statuses:
            stored = jobs.get(other_stored.status.job)
            if stored is not None and stored.document.state is not State.AVAILABLE and not stored.document.holders:
                note = f"it was claimed meanwhile: {stored.document.state}"
                change = StatusChange(IncidentState.COMPLETE, other_stored.status.n, note)
                await self.pipeline.log.move({other_stored.status.id: change})
