"""Incidents as the HTTP interface shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentStatus, StepMark, StepRecord
from forestay.formats.jobs.job_public import time_text


def standing_public(standing: IncidentStatus) -> dict[str, Any]:
    return {
        "id": standing.id,
        "owner": standing.owner,
        "type": standing.kind.value,
        "at": time_text(standing.at),
        "state": standing.state.value,
        "due": time_text(standing.due),
        "cause": standing.cause,
        "flow": standing.flow,
        "case": standing.case,
        "item": standing.item,
        "job": standing.job,
        "group": standing.group,
        "note": standing.note,
    }


def incident_public(
    incident: Incident, standing: IncidentStatus, decisions: Sequence[Decision], steps: Sequence[StepRecord]
) -> dict[str, Any]:
    """An incident with everything it was decided by, what was decided, and what was done."""
    return {
        **standing_public(standing),
        "attempt": incident.attempt,
        "engine": incident.engine,
        "context": dict(incident.context),
        "decisions": [
            {
                "n": one.n,
                "at": time_text(one.at),
                "verdict": one.verdict,
                "by": one.by,
                "exlet": None if one.exlet is None else dict(one.exlet),
                "detail": dict(one.detail),
            }
            for one in decisions
        ],
        "steps": [
            {
                "n": one.n,
                "step": one.step,
                "action": one.action,
                "at": time_text(one.at),
                "state": str(one.detail.get("state", "")),
                "detail": str(one.detail.get("detail", "")),
            }
            for one in steps
            if one.mark is StepMark.OVER
        ],
    }
