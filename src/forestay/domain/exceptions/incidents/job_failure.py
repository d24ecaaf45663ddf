"""Which incident the failure of a job is: the same one, whoever asks."""

from __future__ import annotations

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident, incident_id
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.task_names import instance_of


def failure_incident_id(document: JobDocument) -> str:
    """The id of the incident that the last attempt of a faulted job is, whether it was recorded or not."""
    flow_ref, event = document.flow_ref, failure_event(document)
    run = flow_ref.run if flow_ref is not None else ""
    instance, _ = instance_of(flow_ref.work) if flow_ref is not None else ("", 0)
    return incident_id(
        ExceptionType.ABORT, run=run, instance=instance, job=document.id, attempt=document.attempt, event=event
    )


def is_about(incident: Incident, document: JobDocument) -> bool:
    """Whether the job still stands in the failure of an incident."""
    same = (document.attempt, failure_event(document)) == (incident.attempt, incident.event)
    return document.state is State.FAULTED and same


def failure_event(document: JobDocument) -> str:
    """What happened, by the claim whose end it was; of a job that was lost with its pilots, by how often."""
    return document.last.claim if document.last is not None else f"lost-{document.releases}"
