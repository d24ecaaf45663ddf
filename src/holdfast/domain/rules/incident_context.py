"""What an incident tells, as the fields that conditions ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.faults.incident import Incident
from holdfast.domain.rules.context import BY_NAME

_GROUPS = ("job", "evidence", "case", "item", "host", "site", "history", "now", "exception")
_RESOURCES = ("cpus", "memory", "disk", "gpus", "wall")


def told_by(incident: Incident) -> dict[str, object]:
    """Everything of an incident that has a field; `read_context` makes a whole context of it.

    What an incident kept and no field has (the lines that decided, advice) is passed over.
    """
    kept: Mapping[str, Any] = incident.context
    told: dict[str, object] = {name: value for name, value in kept.items() if name in BY_NAME and value is not None}
    for group in _GROUPS:
        inner = kept.get(group)
        if isinstance(inner, Mapping):
            told |= {
                f"{group}.{name}": value
                for name, value in inner.items()
                if f"{group}.{name}" in BY_NAME and value is not None
            }
    job = kept.get("job")
    resources = job.get("resources") if isinstance(job, Mapping) else None
    if isinstance(resources, Mapping):
        told |= {f"job.{name}": resources[name] for name in _RESOURCES if resources.get(name) is not None}
    finding = kept.get("finding")
    if isinstance(finding, Mapping):
        told |= {
            name: finding[name] for name in ("cause", "confidence", "retry", "pattern") if finding.get(name) is not None
        }
    lines = told.get("evidence.log_tail")
    if isinstance(lines, str):
        told["evidence.log_tail"] = lines.splitlines()
    named = {
        "job.id": incident.job,
        "job.owner": incident.owner,
        "case.id": incident.case,
        "case.version": incident.flow,
    }
    told |= {name: value for name, value in named.items() if value}
    told |= {"exception.type": incident.kind.value, "job.attempt": incident.attempt}
    told.setdefault("cause", incident.cause)
    if incident.item:
        told.setdefault("item.name", incident.item)
        told.setdefault("exception.task", incident.item.partition(":")[0].partition("[")[0])
    return told
