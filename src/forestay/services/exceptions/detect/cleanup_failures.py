"""Records what an attempt left behind on its host because it could not be removed: an incident and an alert.

The attempt's outcome is kept: committed outputs are not discarded because of a folder. So nothing is retried and no attempts are
charged; but the space is lost, and the next job there may fail because of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forestay.domain.exceptions.causes.pilot_finding import UNCLEARED
from forestay.domain.exceptions.evidence.evidence import cleanup_evidence
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    IncidentState,
    incident_id,
    status_of,
)
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.services.exceptions.detect.failure_detector import failure_incident
from forestay.services.jobs.job_completions import CleanupReports, FailedCleanup

IGNORE = "ignore"
"""The verdict of the default policy: the job's outcome is kept."""


@dataclass(slots=True)
class CleanupFailures(CleanupReports):
    """The service. Its writes are create-only, so a pilot may repeat its reports."""

    store: JobStore
    incidents: IncidentStore
    clock: Clock

    async def note(self, failures: Sequence[tuple[JobDocument, str, FailedCleanup]]) -> None:
        """`Transient` if the store does not answer: the pilot repeats its report."""
        now = self.clock.now()
        made = []
        for document, claim, cleanup in failures:
            evidence = cleanup_evidence(document, cleanup.error, cleanup.words)
            incident = failure_incident(document, evidence, UNCLEARED, now)
            event = f"cleanup-{claim}"
            name = incident_id(
                incident.kind,
                run=incident.run,
                instance=incident.instance,
                job=incident.job,
                attempt=incident.attempt,
                event=event,
            )
            made.append(replace(incident, id=name, event=event))
        words = "the job's result is unchanged; remove its files on the host manually"
        statuses = [
            status_of(incident).moved(IncidentState.IGNORED, now=now, n=1, note=words, due=None) for incident in made
        ]
        await self.incidents.add_incidents(list(zip(made, statuses, strict=True)))
        await self.incidents.add_decisions(
            [
                Decision(incident.id, 1, incident.tenant, now, IGNORE, "default policy", detail={"words": words})
                for incident in made
            ]
        )
        await self.store.add_records(
            [_alert(document, claim, cleanup, now) for document, claim, cleanup in failures],
        )


def _alert(document: JobDocument, claim: str, cleanup: FailedCleanup, now: int) -> Record:
    host = document.last.host if document.last is not None else ""
    words = f"job {document.name} of {document.owner} left its working folder on {host} ({cleanup.error})"
    body = {"alert": "cleanup-failed", "words": words, "attempt": document.attempt}
    return Record(f"alert:cleanup:{document.id}:{claim}", document.tenant, "alert", document.id, now, body)
