"""Incidents, statuses, decisions and steps as JSON documents, as stores keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    StepMark,
    StepRecord,
)

Document = TypeVar("Document", Incident, IncidentStatus, Decision, StepRecord)
_ENUMS: Mapping[tuple[type[Any], str], type[StrEnum]] = {
    (Incident, "kind"): ExceptionType,
    (IncidentStatus, "kind"): ExceptionType,
    (IncidentStatus, "state"): IncidentState,
    (StepRecord, "mark"): StepMark,
}
_KINDS: tuple[type[Any], ...] = (Incident, IncidentStatus, Decision, StepRecord)
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}
_ENUMS_OF = {kind: [(name, enum) for (of, name), enum in _ENUMS.items() if of is kind] for kind in _KINDS}


def to_document(value: Incident | IncidentStatus | Decision | StepRecord) -> dict[str, Any]:
    """The document of an incident, a status, a decision or a step."""
    out: dict[str, Any] = {}
    for name in _FIELDS[type(value)]:
        part = getattr(value, name)
        out[name] = part.value if isinstance(part, StrEnum) else part
    return out


def from_document(kind: type[Document], data: Mapping[str, Any]) -> Document:
    """Read a document; fields of a newer writer are left out."""
    values: dict[str, Any] = {name: data[name] for name in _FIELDS[kind] if name in data}
    for name, enum in _ENUMS_OF[kind]:
        if name in values:
            values[name] = enum(values[name])
    return kind(**values)
