"""The data that rules can use of a job without a failed attempt."""

from __future__ import annotations

from typing import Any

from forestay.domain.jobs.job_document import JobDocument, instance_of, task_of
from forestay.domain.jobs.job_flow_pattern import patterns_in_use


def job_context(document: JobDocument, now: int) -> dict[str, Any]:
    """The groups ``job`` and, for a job of a run, ``instance``."""
    needs = document.resources
    job: dict[str, Any] = {
        "name": document.name,
        "team": document.team,
        "labels": dict(document.labels),
        "patterns": [pattern.value for pattern in patterns_in_use(document)],
        "parameters": dict(document.parameters),
        "priority": document.priority,
        "attempt": document.attempt,
        "generation": document.generation,
        "failures": document.failures,
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
    """The place of a job: the fields that `ExceptionEvent` has for it."""
    flow_ref = document.flow_ref
    if flow_ref is None:
        return {"job": document.id, "attempt": document.attempt}
    instance, number = instance_of(flow_ref.work)
    return {
        "job": document.id,
        "attempt": document.attempt,
        "run": flow_ref.run,
        "instance": instance,
        "task": task_of(instance),
        "round": number,
        "flow": flow_ref.flow,
    }
