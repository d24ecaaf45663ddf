"""Raises an alert when a job runs longer than expected: once for each attempt."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.jobs.job_store import JobQuery, Record
from forestay.services.shared.job_alerts import JobAlerts


@dataclass(slots=True)
class RuntimeAlerts(JobAlerts):
    """The service."""

    async def look(self) -> None:
        """Raise an alert for every overdue attempt that has none yet."""
        now = self.clock.now()
        query = JobQuery(states=frozenset({State.RUNNING}), at_most={"overdue": now})
        await self.raise_for(query, lambda document: _alert(document, now), sort="overdue")


def _alert(document: JobDocument, now: int) -> Record:
    held = document.claim
    assert held is not None  # noqa: S101 - overdue is derived from the claim
    running = (now - held.granted) // 1000
    words = (
        f"job {document.name} of {document.owner} has run for {running} s on {held.host}; "
        f"{document.expected_runtime} s were expected"
    )
    body = {"alert": "past-expected-runtime", "words": words, "attempt": document.attempt, "pilot": held.pilot}
    name = f"alert:runtime:{document.id}:{document.generation}.{document.attempt}"
    return Record(name, document.tenant, "alert", document.id, now, body)
