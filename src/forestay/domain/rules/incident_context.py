"""What an incident tells, as the fields that conditions ask about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.task_names import task_of
from forestay.domain.rules.context import BY_NAME, UNFILLED

_GROUPS = ("job", "evidence", "run", "task", "host", "site", "history", "now", "exception")
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
    values: dict[str, object] = {name: value for name, value in kept.items() if name in BY_NAME and value is not None}
    if kept.get(UNFILLED):
        values[UNFILLED] = kept[UNFILLED]
    for group in _GROUPS:
        inner = kept.get(group)
        if isinstance(inner, Mapping):
            names = _NAMES[group]
            values |= {names[name]: value for name, value in inner.items() if name in names and value is not None}
    job = kept.get("job")
    resources = job.get("resources") if isinstance(job, Mapping) else None
    if isinstance(resources, Mapping):
        values |= {f"job.{name}": resources[name] for name in _RESOURCES if resources.get(name) is not None}
    finding = kept.get("finding")
    if isinstance(finding, Mapping):
        values |= {
            name: finding[name] for name in ("cause", "confidence", "retry", "pattern") if finding.get(name) is not None
        }
    lines = values.get("evidence.log_tail")
    if isinstance(lines, str):
        values["evidence.log_tail"] = lines.splitlines()
    named = {
        "job.id": incident.job,
        "job.owner": incident.owner,
        "run.id": incident.run,
        "run.version": incident.flow,
    }
    values |= {name: value for name, value in named.items() if value}
    values |= {"exception.type": incident.kind.value, "job.attempt": incident.attempt}
    if "evidence" in kept:
        values.setdefault("evidence.scheduler", "none")
    # What incidents did not keep that were written before 0.2.
    if values.get("evidence.node"):
        values.setdefault("host.name", values["evidence.node"])
    values.setdefault("now.hour", incident.at // _HOUR % 24)
    values.setdefault("now.weekday", (incident.at // _HOUR // 24 + 3) % 7 + 1)
    values.setdefault("cause", incident.cause)
    if incident.instance:
        values.setdefault("task.name", incident.instance)
        values.setdefault("exception.task", task_of(incident.instance).partition(":")[0].partition("[")[0])
    return values
