"""Exlets as JSON types: how they are stored, carried and told apart. What is at its default is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from hashlib import sha256
from typing import Any

from forestay.domain.exlets.exlet import Exlet, PlaybookStep, WhenRefused
from forestay.domain.exlets.primitive import (
    KINDS,
    STEERING,
    Action,
    ActionTarget,
    Amount,
    AvoidScope,
    NeedChange,
    Primitive,
    Restaging,
    Resubmission,
    Worklet,
)

Plain = dict[str, Any]
_ENUMS: Mapping[str, type[StrEnum]] = {"target": ActionTarget, "scope": AvoidScope}
_HOW: Mapping[Action, type[StrEnum]] = {Action.RESTAGE: Restaging, Action.RESUBMIT: Resubmission}


def exlet_as_plain(exlet: Exlet) -> Plain:
    """An exlet as JSON types."""
    out: Plain = {"name": exlet.name}
    if exlet.description:
        out["description"] = exlet.description
    return out | {"steps": [step_as_plain(step) for step in exlet.steps]}


def exlet_from_plain(data: Mapping[str, Any]) -> Exlet:
    """Read an exlet that was written by us; documents of people are read by `formats.rules.exlet_json`."""
    return Exlet(data["name"], tuple(step_from_plain(one) for one in data["steps"]), data.get("description", ""))


def version_of(exlet: Exlet) -> str:
    """The digest of what an exlet does; its name and description do not count."""
    text = json.dumps([step_as_plain(step) for step in exlet.steps], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


def step_as_plain(step: PlaybookStep) -> Plain:
    out: Plain = {"action": step.action.value}
    for one in fields(step.do):
        if one.name == "action":
            continue
        value = getattr(step.do, one.name)
        default = one.default if one.default is not MISSING else None
        unsaid = value == default or (one.default_factory is not MISSING and not value)
        if unsaid:
            continue
        out[one.name] = _plain(value)
    if step.when_refused is not None:
        out["when_refused"] = step.when_refused.value
    return out


def step_from_plain(data: Mapping[str, Any]) -> PlaybookStep:
    action = Action(data["action"])
    kind = KINDS[action]
    values: Plain = {"action": action} if action in STEERING else {}
    for one in fields(kind):
        if one.name != "action" and one.name in data:
            values[one.name] = _value(action, one.name, data[one.name])
    do: Primitive = kind(**values)
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
            return [_plain(one) for one in value]
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case _:
            return value


def _value(action: Action, name: str, value: Any) -> Any:
    match name:
        case "worklets":
            return tuple(_worklet(one) for one in value)
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
