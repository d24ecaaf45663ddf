"""Events and commands of runs and shards as JSON types, for signals, activities and child workflows.

A message is a record of its fields with its ``type``. Defaults are left out; sets of elements are hexadecimal texts, so that a batch of
5,000 is 1,250 characters long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from typing import Any, get_args

from forestay.domain.flows.commands import CloseQuestion, Command, FinishRun, QuestionOutcome, RunOutcome, WorkOrder
from forestay.domain.flows.events import Event, Verb, VerbKind
from forestay.domain.flows.scatter.elements import from_text, to_text
from forestay.domain.flows.scatter.shard_run import ShardCommand, ShardEvent

Message = Event | Command | ShardEvent | ShardCommand
Plain = dict[str, Any]

_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}
_SETS = {
    "JobsEnded": ("well", "bad", "skipped"),
    "ShardEnded": ("done",),
    "BatchEnded": ("well", "bad", "skipped"),
    "SubmitJobs": ("skip",),
    "StartShard": ("skip",),
    "SubmitBatch": ("skip",),
    "FeedShard": ("ready",),
    "ElementsReady": ("ready",),
    "TellFollower": ("well",),
}
"""The fields that are sets of elements. A shard's ``well`` and ``bad`` are counts."""
_ENUMS: dict[str, dict[str, type[StrEnum]]] = {
    Verb.__name__: {"kind": VerbKind},
    FinishRun.__name__: {"outcome": RunOutcome},
    CloseQuestion.__name__: {"outcome": QuestionOutcome},
}


def as_plain(message: Message | WorkOrder) -> Plain:
    """A message as JSON types."""
    kind = type(message).__name__
    out: Plain = {} if isinstance(message, WorkOrder) else {"type": kind}
    for field in fields(message):
        value = getattr(message, field.name)
        if value == _default(field) and type(value) is type(_default(field)):
            continue
        if value is not None and field.name in _SETS.get(kind, ()):
            value = to_text(value)
        elif isinstance(value, WorkOrder):
            value = as_plain(value)
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, StrEnum):
            value = value.value
        out[field.name] = value
    return out


def from_plain(data: Mapping[str, Any]) -> Message:
    """Read a message; raises `ValueError` for anything else."""
    kind = _TYPES.get(data.get("type", ""))
    if kind is None:
        raise ValueError(f"{data.get('type')!r} is not a message")
    message: Message = _read(kind, data)
    return message


def event_from_plain(data: Mapping[str, Any]) -> Event:
    """Read an event of a run."""
    message = from_plain(data)
    if not isinstance(message, Event):
        raise TypeError(f"{data.get('type')!r} is not an event of a run")
    return message


def order_from_plain(data: Mapping[str, Any]) -> WorkOrder:
    """Read a work order, which is not a message by itself."""
    order: WorkOrder = _read(WorkOrder, data)
    return order


def command_from_plain(data: Mapping[str, Any]) -> Command:
    """Read a command of a run."""
    message = from_plain(data)
    if not isinstance(message, Command):
        raise TypeError(f"{data.get('type')!r} is not a command of a run")
    return message


def _read(kind: type[Any], data: Mapping[str, Any]) -> Any:
    values: Plain = {}
    sets = _SETS.get(kind.__name__, ())
    enums = _ENUMS.get(kind.__name__, {})
    for field in fields(kind):
        if field.name not in data:
            continue
        value = data[field.name]
        if field.name in sets and value is not None:
            value = from_text(value)
        elif field.name == "order":
            value = _read(WorkOrder, value)
        elif field.name in enums:
            value = enums[field.name](value)
        elif isinstance(_default(field), tuple):
            value = tuple(value)
        values[field.name] = value
    return kind(**values)


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
