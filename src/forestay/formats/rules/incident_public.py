"""Incidents as the HTTP interface shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentStatus, StepMark, StepRecord
from forestay.domain.rules.advice import advice_on, verdict_of
from forestay.domain.rules.retry_record import RetryRecord
from forestay.formats.jobs.job_public import time_text


def status_public(status: IncidentStatus) -> dict[str, Any]:
    return {
        "id": status.id,
        "owner": status.owner,
        "type": status.kind.value,
        "at": time_text(status.at),
        "state": status.state.value,
        "due": time_text(status.due),
        "cause": status.cause,
        "flow": status.flow,
        "run": status.run,
        "task": status.instance,
        "job": status.job,
        "group": status.group,
        "fingerprint": status.fingerprint,
        "title": status.title,
        "host": status.host,
        "site": status.site,
        "exit_code": status.exit_code,
        "note": status.note,
    }


def retry_record_public(record: RetryRecord | None) -> dict[str, Any] | None:
    return None if record is None else {**asdict(record), "words": record.words}


def incident_public(
    incident: Incident,
    status: IncidentStatus,
    decisions: Sequence[Decision],
    steps: Sequence[StepRecord],
    record: RetryRecord | None = None,
) -> dict[str, Any]:
    """An incident with all that its decision was based on, the decisions, and the actions."""
    finding = incident.context.get("finding")
    return {
        **status_public(status),
        "retry_verdict": verdict_of(finding) if isinstance(finding, Mapping) else "",
        "advice": advice_on(finding, decisions[-1] if decisions else None, status.state, status.note)
        if isinstance(finding, Mapping)
        else "",
        "retry_record": retry_record_public(record),
        "attempt": incident.attempt,
        "engine": incident.engine,
        "context": dict(incident.context),
        "decisions": [
            {
                "n": decision.n,
                "at": time_text(decision.at),
                "verdict": decision.verdict,
                "by": decision.by,
                "playbook": None if decision.playbook is None else dict(decision.playbook),
                "detail": dict(decision.detail),
            }
            for decision in decisions
        ],
        "steps": [
            {
                "n": record.n,
                "step": record.step,
                "action": record.action,
                "at": time_text(record.at),
                "state": str(record.detail.get("state", "")),
                "detail": str(record.detail.get("detail", "")),
            }
            for record in steps
            if record.mark is StepMark.OVER
        ],
    }
