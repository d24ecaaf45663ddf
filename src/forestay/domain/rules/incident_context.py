"""What an incident tells, as the fields that conditions ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.rules.context import BY_NAME

_GROUPS = ("job", "evidence", "case", "item", "host", "site", "history", "now", "exception")
_HOUR = 3_600_000
_RESOURCES = ("cpus", "memory", "disk", "gpus", "wall")
_NAMES: Mapping[str, Mapping[str, str]] = {
    group: {name.removeprefix(f"{group}."): name for name in BY_NAME if name.startswith(f"{group}.")}
    for group in _GROUPS
}
"""The fields of each group by the name that they have in it."""


def told_by(incident: Incident) -> dict[str, object]:
    """Everything of an incident that has a field; `read_context` makes a whole context of it.

    What an incident kept and no field has (the lines that decided, advice) is passed over.
    """
    kept: Mapping[str, Any] = incident.context
    told: dict[str, object] = {name: value for name, value in kept.items() if name in BY_NAME and value is not None}
    for group in _GROUPS:
        inner = kept.get(group)
        if isinstance(inner, Mapping):
            names = _NAMES[group]
            told |= {names[name]: value for name, value in inner.items() if name in names and value is not None}
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
    # As they were when the fault was first decided on (`fault_context`).
    if told.get("evidence.node"):
        told.setdefault("host.name", told["evidence.node"])
    told.setdefault("now.hour", incident.at // _HOUR % 24)
    told.setdefault("now.weekday", (incident.at // _HOUR // 24 + 3) % 7 + 1)
    told.setdefault("cause", incident.cause)
    if incident.item:
        told.setdefault("item.name", incident.item)
        told.setdefault("exception.task", incident.item.partition(":")[0].partition("[")[0])
    return told
