"""Playbook actions on the domain to which a job is sent, and on who is notified of its completion there (paper P0, section 4).

A domain is reached through the relays of its task server, which servers enrol as pilots: so every process knows the domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from forestay.domain.jobs.claim import AVOIDED, at_site
from forestay.domain.jobs.conversation import is_forwardable
from forestay.domain.jobs.job_document import ANY_DOWNSTREAM, DOWNSTREAM, JobDocument, downstream_of
from forestay.domain.pilots.pilot import CALLS_BACK, RELAY, Pilot, PilotState, carries
from forestay.domain.playbooks.action import Reregister, Resubmit
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.exceptions.act.job_actions import (
    MAX_AVOIDED,
    REGISTERED,
    ActionOutcome,
    JobActions,
    awaited_notes,
    job_of,
)
from forestay.services.exceptions.record.decision_log import StepRequest

AVOID_FOR = 3_600_000
"""Milliseconds for which a job avoids the domain from which it was resubmitted."""


@dataclass(slots=True)
class DomainActions:
    """The service; a performer of playbooks."""

    jobs: JobActions
    store: JobStore
    pilots: PilotStore
    clock: Clock

    async def __call__(self, ask: StepRequest) -> ActionOutcome:
        document = await job_of(self.store, ask.incident)
        if isinstance(document, ActionOutcome):
            return document
        alive = await self.pilots.find_pilots(tenant=ask.incident.tenant, state=PilotState.ALIVE.value)
        relays = [pilot for pilot in alive if pilot.site.startswith(RELAY)]
        match ask.do:
            case Resubmit(domain=domain):
                return await self._resubmit(ask, document, domain, relays)
            case Reregister():
                return await self._register(ask, document, relays)
            case do:
                return ActionOutcome(done=False, detail=f"{do.action} does not concern a domain")

    async def _resubmit(
        self, ask: StepRequest, document: JobDocument, domain: str, relays: Sequence[Pilot]
    ) -> ActionOutcome:
        """Send the job to the named domain, or to any other one that claims it first."""
        before = downstream_of(document)
        if before == ANY_DOWNSTREAM:
            before = document.last.host if document.last is not None else ""
        others = {pilot.site.removeprefix(RELAY) for pilot in relays} - {before}
        if not others or (domain and domain not in others):
            known = f"; there is {', '.join(sorted(others))}" if others else ""
            return ActionOutcome(done=False, detail=f"there is no other domain{f' {domain}' if domain else ''}{known}")
        if not downstream_of(document) and not await self._forwardable(document):
            return ActionOutcome(done=False, detail="a job with files or a function call cannot leave this domain")
        notes = {DOWNSTREAM: domain or ANY_DOWNSTREAM, **awaited_notes(ask.later)}
        if before and not domain:
            notes[AVOIDED] = self._avoiding(document, at_site(f"{RELAY}{before}"))
        return await self.jobs.recover(ask.incident, ask.do, step=ask.id, notes=notes)

    def _avoiding(self, document: JobDocument, site: str) -> Mapping[str, int]:
        now = self.clock.now()
        avoided = {**cast("Mapping[str, int]", document.extra.get(AVOIDED, {})), site: now + AVOID_FOR}
        return dict(sorted(avoided.items(), key=lambda pair: pair[1])[-MAX_AVOIDED:])

    async def _forwardable(self, document: JobDocument) -> bool:
        specifications = await self.store.get_specifications([document.specification])
        return document.specification in specifications and is_forwardable(specifications[document.specification])

    async def _register(self, ask: StepRequest, document: JobDocument, relays: Sequence[Pilot]) -> ActionOutcome:
        """Register those who wait for the job's completion for that of its next attempt: at its task server, and at this one."""
        registered = []
        if document.delivery is not None:
            registered.append("callback")
        elif document.flow_ref is not None and document.flow_ref.of:
            registered.append("run")
        downstream = downstream_of(document)
        if downstream and any(carries(pilot, downstream) and pilot.extra.get(CALLS_BACK) for pilot in relays):
            registered.append("relay")
        if not registered:
            return ActionOutcome(done=False, detail="nobody is registered for the end of the job; use repoll")
        notes = {REGISTERED: ", ".join(registered)}
        return await self.jobs.recover(ask.incident, ask.do, step=ask.id, notes=notes)
