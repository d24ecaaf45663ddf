"""Matches the requirements of jobs with pilots: each requirement is evaluated once for each class of pilots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.requirements import requirement_of
from forestay.domain.pilots.pilot import HOST, PilotClass, PilotState, carries, pilot_class
from forestay.ports.clock import Clock
from forestay.ports.jobs.requirements import Requirements
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.ports.rules.conditions import ConditionProblem
from forestay.services.shared.recent import Recent

MOST_ANSWERS = 100_000
READ_EVERY = 5.0
"""Seconds for which the list of pilots is cached."""


@dataclass(slots=True)
class RequirementMatcher:
    """The service."""

    requirements: Requirements
    pilots: PilotStore
    clock: Clock
    evaluated: int = 0
    _answers: Recent[tuple[str, str], bool] = field(default_factory=lambda: Recent(MOST_ANSWERS))
    _alive: dict[str, tuple[float, list[PilotClass]]] = field(default_factory=dict)
    """By tenant: when its pilots were read, and their classes."""

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

    async def unsatisfied(self, document: JobDocument) -> str:
        """The requirement of a job that no live pilot of its tenant satisfies; empty where one does, or nothing is required."""
        text = requirement_of(document.extra) if document.extra else ""
        if not text:
            return ""
        now = self.clock.monotonic()
        known = self._alive.get(document.tenant)
        if known is None or now - known[0] > READ_EVERY:
            alive = await self.pilots.find_pilots(tenant=document.tenant, state=PilotState.ALIVE.value)
            classes = [pilot_class(pilot) for pilot in alive if carries(pilot, "")]
            known = self._alive[document.tenant] = (now, classes)
        return "" if any(self._holds(text, machine) for machine in known[1]) else text
