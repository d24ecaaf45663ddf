"""The incident that the failure of a job is, with the whole context that it is decided by: a later replay reads the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.pilot_finding import execution_failure
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.evidence.redaction import redacted_value
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.exceptions.incidents.job_failure import failure_event, failure_incident_id
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.task_names import instance_of, task_of
from forestay.formats.jobs.job_public import job_public
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json
from forestay.services.exceptions.detect.exception_event import fitting

LOG_KEPT = 16_000
"""Characters of the log that go into the incident, and that rules see; the evidence beside the attempt may have more of it."""
PARAMETERS_KEPT = 4_000
"""Bytes of a job's parameters as JSON that go into the incident; larger ones are left out."""
KEPT = (
    "name", "labels", "resources", "priority", "attempt", "generation", "failures", "releases", "max_attempts", "index", "team",
)  # fmt: skip


def failure_incident(
    document: JobDocument,
    evidence: Evidence,
    finding: CauseFinding,
    now: int,
    *,
    flow: str = "",
    site: str = "",
    past: Mapping[str, object] | None = None,
) -> Incident:
    """The incident of a faulted job's last attempt: the same one, whoever makes it. `flow` is the flow's name, `past` what `PastFailures.told` says."""
    flow_ref, event = document.flow_ref, failure_event(document)
    run = flow_ref.run if flow_ref is not None else ""
    instance, round_ = instance_of(flow_ref.work) if flow_ref is not None else ("", 0)
    told = evidence_to_json(evidence)
    if "log_tail" in told:
        told["log_tail"] = told["log_tail"][-LOG_KEPT:]
    if evidence.more:
        told["more"] = redacted_value(dict(evidence.more))
    shown = job_public(document)
    moment = datetime.fromtimestamp(now / 1000, UTC)
    context: dict[str, Any] = {
        "job": {name: shown[name] for name in KEPT} | _more(document, now),
        "evidence": told,
        "finding": finding_to_json(finding),
        "failure": execution_failure(evidence.stage, finding.cause).value,
        "exception": {"type": ExceptionType.ABORT.value, "task": task_of(instance)},
        "host": {"name": evidence.node},
        "site": {"name": site},
        "now": {"hour": moment.hour, "weekday": moment.isoweekday()},
        **(past or {}),
    }
    if flow_ref is not None:
        found: dict[str, Any] = {"id": run, "flow": flow, "version": flow_ref.flow, "depth": len(flow_ref.above)}
        context["run"] = context.get("run", {}) | found
        context["task"] = context.get("task", {}) | {"name": instance, "round": round_}
    kind = ExceptionType.ABORT
    return Incident(
        id=failure_incident_id(document),
        tenant=document.tenant,
        owner=document.owner,
        kind=kind,
        at=now,
        run=run,
        instance=instance,
        job=document.id,
        attempt=document.attempt,
        event=event,
        cause=str(finding.cause),
        flow=flow_ref.flow if flow_ref is not None else "",
        round=round_,
        context=fitting(context),
    )


def _more(document: JobDocument, now: int) -> dict[str, Any]:
    """What rules are asked with beside what is shown of a job, so that a replay decides by the same."""
    more: dict[str, Any] = {
        "age": max(0.0, (now - document.created) / 1000),
        "when_exhausted": document.retry.when_exhausted.value,
    }
    parameters = dict(document.parameters)
    return more | ({"parameters": parameters} if len(json.dumps(parameters)) <= PARAMETERS_KEPT else {})
