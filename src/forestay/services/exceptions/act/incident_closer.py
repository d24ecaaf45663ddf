"""Closes incidents whose failure was answered by a process that died before it recorded the outcome.

The answer to a failure is one write on its job, after which the job is no longer a failure and no search finds it. What may be missing is the record that the step
is over, the incident's status, and, at the end of a retry policy, the report to the run. All of these are repeated here, under the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.default_policy import DefaultAction
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, IncidentStatus, is_about
from forestay.domain.playbooks.playbook import is_one_write, playbook_from_plain
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
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
    """The service; every reconciler runs it."""

    incidents: IncidentStore
    store: JobStore
    playbooks: PlaybookRunner
    clock: Clock
    every: float = 15.0
    troubled: Callable[[str], None] = lambda _text: None
    closed: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def run(self) -> None:
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        """Check the incidents of failures that are open or postponed, and overdue."""
        query = IncidentQuery(kind=ExceptionType.ABORT.value, states=UNSETTLED, due=self.clock.now())
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort="due", limit=BULK, cursor=cursor)
            statuses = {stored.status.id: stored.status for stored in page.statuses if stored.status.job}
            known = await self.quarantine.readable(self.incidents.get_incidents, list(statuses), self.troubled)
            names = [status.job for status in statuses.values()]
            jobs = await self.quarantine.readable(self.store.get, names, self.troubled)

            async def look_at(
                incident: Incident,
                statuses: Mapping[str, IncidentStatus] = statuses,
                jobs: Mapping[str, Stored] = jobs,
            ) -> None:
                # A job that is missing in the batch is read alone: unreadable does not mean gone.
                stored = jobs.get(incident.job) or (await self.store.get([incident.job])).get(incident.job)
                if stored is None or not is_about(incident, stored.document):
                    await self._close(incident, statuses[incident.id])

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

    async def _close(self, incident: Incident, status: IncidentStatus) -> None:
        decision = await self.incidents.get_decision(incident.id, max(1, status.n))
        if decision is None:
            await self._move(status, IncidentState.COMPLETE, "the job continued before a decision")
        elif decision.playbook is None:
            words = str(decision.detail.get("words", ""))
            await self._move(status, _STATES.get(decision.verdict, IncidentState.COMPLETE), words)
        elif is_one_write(playbook_from_plain(decision.playbook), of_run=bool(incident.run)):
            await self._repeat(incident, decision)
        elif status.state is IncidentState.OPEN:
            await self._move(status, IncidentState.HELD, "the job continued before its playbook started")
        else:
            return  # its playbook may have begun since it was postponed, and records its own end
        self.closed += 1

    async def _repeat(self, incident: Incident, decision: Decision) -> None:
        """Repeat the decision; an action that took place is found by the step's id and not done again."""
        await self.playbooks.do_only_step(incident.id, decision.n)

    async def _move(self, status: IncidentStatus, state: IncidentState, words: str) -> None:
        known = (await self.incidents.get_statuses([status.id])).get(status.id)
        if known is not None and known.status.state in UNSETTLED:
            moved = known.status.moved(state, now=self.clock.now(), n=max(1, status.n), note=words)
            await self.incidents.put_statuses([(moved, known.version)])
