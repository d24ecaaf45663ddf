"""What rules may see of a job of which no attempt has failed."""

from __future__ import annotations

from typing import Any

from forestay.domain.flows.execution.case_names import item_of
from forestay.domain.jobs.job_document import JobDocument
from forestay.services.exceptions.detect.constraint_checker import task_of


def job_context(document: JobDocument, now: int) -> dict[str, Any]:
    """The groups ``job`` and, of a job that a case asked for, ``item``."""
    needs = document.resources
    job: dict[str, Any] = {
        "name": document.name,
        "team": document.team,
        "labels": dict(document.labels),
        "parameters": dict(document.parameters),
        "priority": document.priority,
        "attempt": document.attempt,
        "generation": document.generation,
        "faults": document.faults,
        "releases": document.releases,
        "cpus": needs.cpus,
        "memory": needs.memory,
        "disk": needs.disk,
        "gpus": needs.gpus,
        "age": max(0.0, (now - document.created) / 1000),
    }
    if needs.wall is not None:
        job["wall"] = needs.wall
    if document.index is not None:
        job["index"] = document.index
    return {"job": job}


def place_of(document: JobDocument) -> dict[str, Any]:
    """Where a job belongs: the fields that `ExceptionEvent` has for it."""
    tie = document.tie
    if tie is None:
        return {"job": document.id, "attempt": document.attempt}
    item, number = item_of(tie.work)
    return {
        "job": document.id,
        "attempt": document.attempt,
        "case": tie.case,
        "item": item,
        "task": task_of(item),
        "round": number,
        "flow": tie.flow,
    }
