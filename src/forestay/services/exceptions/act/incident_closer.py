"""Brings incidents to their end whose fault was answered by someone who died before they could say so.

The answer to a fault is one write on its job, and what the job is after it is no fault any more: nobody looks for it again. What may be missing is the document
that the step is over, where the incident stands, and of a ladder that has come to its end the word to the case. All of it is repeated here, under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.house_policy import DefaultAction
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, IncidentStatus
from forestay.domain.exlets.exlet import is_one_write
from forestay.domain.exlets.exlet_plain import exlet_from_plain
from forestay.domain.exlets.exlet_run import PlaybookRunState, StepState
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.detect.fault_incident import is_about
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

BULK = 200
UNSETTLED = frozenset({IncidentState.OPEN, IncidentState.WAITING})
_STATES = {
    DefaultAction.RETRY.value: IncidentState.COMPLETE,
    DefaultAction.HOLD.value: IncidentState.HELD,
    DefaultAction.FAIL.value: IncidentState.FAILED,
}


@dataclass(slots=True)
class IncidentCloser:
    """The service; every keeper runs it."""

    incidents: IncidentStore
    store: JobStore
    exlets: PlaybookRunner
    clock: Clock
    every: float = 15.0
    troubled: Callable[[str], None] = lambda _text: None
    closed: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Go through the incidents of faults that are open, or were put off, and are overdue."""
        query = IncidentQuery(kind=ExceptionType.ABORT.value, states=UNSETTLED, due=self.clock.now())
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort="due", limit=BULK, cursor=cursor)
            standings = {one.standing.id: one.standing for one in page.found if one.standing.job}
            known = await self.quarantine.readable(self.incidents.get_incidents, list(standings), self.troubled)
            names = [one.job for one in standings.values()]
            jobs = await self.quarantine.readable(self.store.get, names, self.troubled)

            async def look_at(
                incident: Incident,
                standings: Mapping[str, IncidentStatus] = standings,
                jobs: Mapping[str, Stored] = jobs,
            ) -> None:
                # One that was left out is read alone: to be unreadable is not to be gone.
                stored = jobs.get(incident.job) or (await self.store.get([incident.job])).get(incident.job)
                if stored is None or not is_about(incident, stored.document):
                    await self._close(incident, standings[incident.id])

            later = await self.quarantine.each(
                known.values(),
                look_at,
                name=lambda incident: f"incident {incident.id}",
                troubled=self.troubled,
            )
            if later is not None:
                self.troubled(str(later))
            cursor = page.cursor
            if cursor is None:
                return

    async def _close(self, incident: Incident, standing: IncidentStatus) -> None:
        decision = await self.incidents.get_decision(incident.id, max(1, standing.n))
        if decision is None:
            await self._move(standing, IncidentState.COMPLETE, "the job continued before a decision")
        elif decision.exlet is None:
            words = str(decision.detail.get("words", ""))
            await self._move(standing, _STATES.get(decision.verdict, IncidentState.COMPLETE), words)
        elif is_one_write(exlet_from_plain(decision.exlet), of_case=bool(incident.case)):
            await self._repeat(incident, decision)
        elif standing.state is IncidentState.OPEN:
            await self._move(standing, IncidentState.HELD, "the job continued before its playbook started")
        else:
            return  # its exlet may have begun since it was put off, and says itself how it ends
        self.closed += 1

    async def _repeat(self, incident: Incident, decision: Decision) -> None:
        """What took place is found by the step's id, and is not done a second time."""
        end = await self.exlets.do_step(incident.id, decision.n, 0)
        state = PlaybookRunState.COMPLETE if end.state is StepState.DONE else PlaybookRunState.FAILED
        await self.exlets.finish(incident.id, decision.n, state, reason=end.detail)

    async def _move(self, standing: IncidentStatus, state: IncidentState, words: str) -> None:
        known = (await self.incidents.get_standings([standing.id])).get(standing.id)
        if known is not None and known.standing.state in UNSETTLED:
            moved = known.standing.moved(state, now=self.clock.now(), n=max(1, standing.n), note=words)
            await self.incidents.put_standings([(moved, known.version)])
