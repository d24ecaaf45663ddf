"""A playbook: the named, ordered steps that answer an exception. Rules of any rule set may start the same one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
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
    Hold,
    NeedChange,
    Restaging,
    Resubmission,
    Steer,
    Worklet,
)

MAX_STEPS = 32


class WhenRefused(StrEnum):
    """The effect of a refused step on the playbook."""

    STOP = "stop"
    """The playbook fails, and a person is asked; its suspensions stay."""
    GO_ON = "go-on"


@dataclass(frozen=True, slots=True)
class PlaybookStep:
    """One action of a playbook."""

    do: Action
    when_refused: WhenRefused | None = None
    """``None``: as `refusal_of` says."""

    @property
    def action(self) -> ActionKind:
        return self.do.action


_HARMLESS = frozenset(
    {ActionKind.CONTINUE, ActionKind.NOTIFY, ActionKind.AVOID_HOST, ActionKind.REPOLL, ActionKind.REREGISTER}
)
"""Actions without which the rest of a playbook still makes sense."""


def refusal_of(step: PlaybookStep) -> WhenRefused:
    """The effect on the playbook if this step is refused."""
    if step.when_refused is not None:
        return step.when_refused
    return WhenRefused.GO_ON if step.action in _HARMLESS else WhenRefused.STOP


@dataclass(frozen=True, slots=True)
class Playbook:
    """What is done about an exception."""

    name: str
    steps: tuple[PlaybookStep, ...]
    description: str = ""


_ONE_WRITE = frozenset(
    {
        ActionKind.RESUBMIT,
        ActionKind.RETRY,
        ActionKind.AVOID_HOST,
        ActionKind.RESTAGE,
        ActionKind.REMAKE,
        ActionKind.FREE_SPACE,
        ActionKind.RESERVE_SPACE,
        ActionKind.REPOLL,
        ActionKind.REREGISTER,
    }
)
_FORCED = frozenset(
    {ActionKind.RESTART, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL, ActionKind.REMOVE, ActionKind.SUSPEND}
)


def aimed(playbook: Playbook, *, at_job: bool) -> Playbook:
    """The playbook for one exception: steps without a target of their own apply to its job, or to its task if there is no job."""
    subject = ActionTarget.JOB if at_job else ActionTarget.TASK

    def aim(step: PlaybookStep) -> PlaybookStep:
        match step.do:
            case Steer(target=ActionTarget.SUBJECT) | Hold(target=ActionTarget.SUBJECT):
                return replace(step, do=replace(step.do, target=subject))
            case _:
                return step

    return replace(playbook, steps=tuple(aim(step) for step in playbook.steps))


def is_one_write(playbook: Playbook, *, of_run: bool = False) -> bool:
    """Whether the whole playbook is a single write of one job's document, which needs no workflow.

    ``of_run``: the job belongs to a run, so that its task comprises more than the job.
    """
    if len(playbook.steps) != 1:
        return False
    do = playbook.steps[0].do
    if do.action in _ONE_WRITE:
        return True
    match do:
        case Steer(action, target) if action in _FORCED:
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.TASK) and not of_run)
        case Hold(target):
            return target is ActionTarget.JOB or (target in (ActionTarget.SUBJECT, ActionTarget.TASK) and not of_run)
        case _:
            return False


def is_of_job(playbook: Playbook) -> bool:
    """Whether every step concerns the job alone and ends at once, so that the steps can be done in sequence without a workflow."""
    return all(step.action in _ONE_WRITE or step.action is ActionKind.NOTIFY for step in playbook.steps)


def actions_of(steps: Sequence[PlaybookStep]) -> tuple[str, ...]:
    """A playbook in a line, for people: ``suspend run``, ``compensate``, ``continue run``."""
    return tuple(
        f"{step.action} {step.do.target}" if isinstance(step.do, Steer) else step.action.value for step in steps
    )


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
    """Read a playbook in stored form; playbooks written by people are read by `formats.rules.playbook_json`."""
    return Playbook(data["name"], tuple(step_from_plain(step) for step in data["steps"]), data.get("description", ""))


def version_of(playbook: Playbook) -> str:
    """The digest of a playbook's steps, without its name and description."""
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
