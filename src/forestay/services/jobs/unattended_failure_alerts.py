"""Raises an alert when a job fails for which nobody waits: once for each job."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.exceptions.incidents.default_policy import NEVER
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.job_flow_pattern import FORGOTTEN
from forestay.ports.jobs.job_store import JobQuery, Record
from forestay.services.shared.job_alerts import JobAlerts

OVERLAP = 60_000
"""Milliseconds by which each search overlaps the last: clocks differ and searches lag."""
SETTLED = 20_000
"""Milliseconds that a failure must have waited for a person: one that a playbook answers step by step waits too, but not for long."""
FIRST_LOOK = 86_400_000
"""Milliseconds that the first search goes back: failures while no reconciler ran are reported, too."""


@dataclass(slots=True)
class UnattendedFailureAlerts(JobAlerts):
    """The service."""

    _since: int | None = None

    async def look(self) -> None:
        """Raise an alert for every unattended job that has failed and has none yet."""
        now = self.clock.now()
        since = now - FIRST_LOOK if self._since is None else self._since
        states = frozenset({State.FAILED, State.FAULTED})
        query = JobQuery(states=states, labels={FORGOTTEN: "true"}, at_least={"changed": since})
        await self.raise_for(
            query, lambda document: _alert(document, now) if _lost(document, now) else None, sort="changed"
        )
        self._since = now - OVERLAP


def _lost(document: JobDocument, now: int) -> bool:
    """Whether nothing more is done about it automatically: a failure that is being answered, or retried later, does not count yet."""
    waits = document.not_before >= NEVER and now - document.changed >= SETTLED
    return document.state is State.FAILED or waits


def _alert(document: JobDocument, now: int) -> Record:
    last = document.last
    how = "" if last is None else f" ({last.reason}, exit code {last.exit_code}, on {last.host})"
    words = f"job {document.name} of {document.owner} is {document.state}{how}, and is unattended"
    body = {"alert": "forgotten-job-failed", "words": words, "attempt": document.attempt}
    return Record(f"alert:forgotten:{document.id}", document.tenant, "alert", document.id, now, body)
