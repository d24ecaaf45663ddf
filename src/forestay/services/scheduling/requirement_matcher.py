"""Matches what jobs require with pilots: each requirement is evaluated once for each class of pilots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.requirements import requirement_of
from forestay.domain.pilots.pilot import HOST, PilotClass, PilotState, carries, pilot_class
from forestay.domain.scheduling.too_small import too_small
from forestay.ports.clock import Clock
from forestay.ports.jobs.requirements import Requirements
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.ports.rules.conditions import ConditionProblem
from forestay.services.shared.recent import Recent

MOST_ANSWERS = 100_000
READ_EVERY = 5.0
"""Seconds for which the list of pilots is cached, at least."""
READ_RATE = 200
"""Pilots a second that are read for this at most: of many, the list is cached for longer."""


@dataclass(slots=True)
class RequirementMatcher:
    """The service."""

    requirements: Requirements
    pilots: PilotStore
    clock: Clock
    evaluated: int = 0
    _answers: Recent[tuple[str, str], bool] = field(default_factory=lambda: Recent(MOST_ANSWERS))
    _alive: dict[str, tuple[float, list[PilotClass]]] = field(default_factory=dict)
    """By tenant: until when its pilots need not be read again, and their classes."""

    def problems(self, text: str) -> Sequence[ConditionProblem]:
        """All problems of a requirement, with their positions."""
        return self.requirements.problems(text)

    def satisfies(self, document: JobDocument, machine: PilotClass | None) -> bool:
        """Whether a job may be given to a pilot of that class. Pilots without a known class get no job with requirements."""
        text = requirement_of(document.extra) if document.extra else ""
        return not text or (machine is not None and self._holds(text, machine))

    def _holds(self, text: str, machine: PilotClass) -> bool:
        # Few requirements name a host; those are evaluated for each host.
        key = (text, f"{machine.id}@{machine.facts[HOST]}" if HOST in text else machine.id)
        known = self._answers.get(key)
        if known is None:
            self.evaluated += 1
            known = self._answers[key] = self.requirements.holds(text, machine.facts)
        return known

    async def waits_for(self, document: JobDocument) -> str:
        """Why no live pilot of its tenant could ever have a job: none is there, none is large enough, or none satisfies its requirement; empty where one could."""
        machines = await self._live(document.tenant)
        if not machines:
            return "no pilot is connected"
        if lacking := too_small(document.resources, [machine.resources for machine in machines]):
            return f"no pilot is large enough: {lacking}"
        text = requirement_of(document.extra) if document.extra else ""
        holds = not text or any(self._holds(text, machine) for machine in machines)
        return "" if holds else f"no pilot satisfies {text}"

    async def _live(self, tenant: str) -> Sequence[PilotClass]:
        """The classes of a tenant's live pilots, and for requirements that name a host, each of their hosts."""
        now = self.clock.monotonic()
        known = self._alive.get(tenant)
        if known is None or now >= known[0]:
            alive = await self.pilots.find_pilots(tenant=tenant, state=PilotState.ALIVE.value)
            classes = [pilot_class(pilot) for pilot in alive if carries(pilot, "")]
            known = self._alive[tenant] = (now + max(READ_EVERY, len(alive) / READ_RATE), classes)
        return known[1]
