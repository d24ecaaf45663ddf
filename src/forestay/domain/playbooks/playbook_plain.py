"""Playbooks as JSON types: how they are stored, carried and told apart. What is at its default is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from hashlib import sha256
from typing import Any

from forestay.domain.playbooks.action import (
    KINDS,
    STEERING,
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidScope,
    NeedChange,
    Restaging,
    Resubmission,
    Worklet,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, WhenRefused

Plain = dict[str, Any]
_ENUMS: Mapping[str, type[StrEnum]] = {"target": ActionTarget, "scope": AvoidScope}
_HOW: Mapping[ActionKind, type[StrEnum]] = {ActionKind.RESTAGE: Restaging, ActionKind.RESUBMIT: Resubmission}


def playbook_as_plain(playbook: Playbook) -> Plain:
    """A playbook as JSON types."""
    out: Plain = {"name": playbook.name}
    if playbook.description:
        out["description"] = playbook.description
    return out | {"steps": [step_as_plain(step) for step in playbook.steps]}


def playbook_from_plain(data: Mapping[str, Any]) -> Playbook:
    """Read a playbook that was written by us; documents of people are read by `formats.rules.playbook_json`."""
    return Playbook(data["name"], tuple(step_from_plain(step) for step in data["steps"]), data.get("description", ""))


def version_of(playbook: Playbook) -> str:
    """The digest of what a playbook does; its name and description do not count."""
    text = json.dumps([step_as_plain(step) for step in playbook.steps], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def step_as_plain(step: PlaybookStep) -> Plain:
    out: Plain = {"action": step.action.value}
    for field in fields(step.do):
        if field.name == "action":
            continue
        value = getattr(step.do, field.name)
        default = field.default if field.default is not MISSING else None
        unsaid = value == default or (field.default_factory is not MISSING and not value)
        if unsaid:
            continue
        out[field.name] = _plain(value)
    if step.when_refused is not None:
        out["when_refused"] = step.when_refused.value
    return out


def step_from_plain(data: Mapping[str, Any]) -> PlaybookStep:
    action = ActionKind(data["action"])
    kind = KINDS[action]
    values: Plain = {"action": action} if action in STEERING else {}
    for field in fields(kind):
        if field.name != "action" and field.name in data:
            values[field.name] = _value(action, field.name, data[field.name])
    do: Action = kind(**values)
    refused = data.get("when_refused")
    return PlaybookStep(do, WhenRefused(refused) if refused is not None else None)


def _plain(value: Any) -> Any:
    match value:
        case StrEnum():
            return value.value
        case Worklet():
            parts = {"give": dict(value.give), "take": dict(value.take)}
            return {"flow": value.flow} | {name: part for name, part in parts.items() if part}
        case NeedChange():
            parts = {"factor": value.factor, "to": value.to, "at_most": value.at_most}
            return {name: part for name, part in parts.items() if part is not None}
        case tuple():
            return [_plain(entry) for entry in value]
        case Mapping():
            return {str(name): _plain(entry) for name, entry in value.items()}
        case _:
            return value


def _value(action: ActionKind, name: str, value: Any) -> Any:
    match name:
        case "worklets":
            return tuple(_worklet(entry) for entry in value)
        case "worklet":
            return _worklet(value)
        case "needs":
            return {Amount(amount): NeedChange(**need) for amount, need in value.items()}
        case "to":
            return tuple(value)
        case "how":
            return _HOW[action](value)
        case _ if name in _ENUMS:
            return _ENUMS[name](value)
        case _:
            return value


def _worklet(data: Mapping[str, Any]) -> Worklet:
    return Worklet(data["flow"], data.get("give", {}), data.get("take", {}))
