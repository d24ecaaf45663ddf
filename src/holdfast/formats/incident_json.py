"""Incidents, standings, decisions and steps as JSON documents, as stores keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.faults.incident import Decision, Incident, IncidentState, Standing, StepMark, StepRecord

Document = TypeVar("Document", Incident, Standing, Decision, StepRecord)
_ENUMS: Mapping[tuple[type[Any], str], type[StrEnum]] = {
    (Incident, "kind"): ExceptionType,
    (Standing, "kind"): ExceptionType,
    (Standing, "state"): IncidentState,
    (StepRecord, "mark"): StepMark,
}


def to_document(value: Incident | Standing | Decision | StepRecord) -> dict[str, Any]:
    """The document of an incident, a standing, a decision or a step."""
    out: dict[str, Any] = {}
    for one in fields(value):
        part = getattr(value, one.name)
        out[one.name] = part.value if isinstance(part, StrEnum) else part
    return out


def from_document(kind: type[Document], data: Mapping[str, Any]) -> Document:
    """Read a document back; fields that a newer writer put there are left out."""
    values: dict[str, Any] = {}
    for one in fields(kind):
        if one.name in data:
            enum = _ENUMS.get((kind, one.name))
            values[one.name] = data[one.name] if enum is None else enum(data[one.name])
    return kind(**values)
