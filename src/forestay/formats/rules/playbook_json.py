"""Playbooks as documents: every error is reported with its position.

A step is a record with its ``action``: ``{action: suspend, target: run}``. A step without arguments may be written as its action alone, and with a target
as both words: ``suspend run``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

import yaml

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.flow_problem import FlowProblem, Place, did_you_mean
from forestay.domain.playbooks.action import (
    KINDS,
    STEERING,
    Action,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidScope,
    NeedChange,
    Notify,
    Restaging,
    Resubmission,
    Worklet,
)
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, WhenRefused, playbook_as_plain
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.formats.flows.yaml_flow import TextProblem, text_problems
from forestay.formats.text.document_fields import Fields, depth_of, duration_of, size_of
from forestay.formats.text.yaml_text import read_yaml

LANGUAGE = 1
MAX_DEPTH = 20
_SIZES = frozenset({"size", "buffer"})
_DURATIONS = frozenset({"seconds", "timeout", "wait"})


@dataclass(frozen=True, slots=True)
class PlaybookText:
    """The result of reading a playbook's text: a playbook, or problems."""

    playbook: Playbook | None
    problems: tuple[TextProblem, ...] = ()


def read_playbook_text(
    text: str, kind: ExceptionType | None = None, *, worklets: Container[str] | None = None
) -> PlaybookText:
    """Read and check a playbook written in YAML (or JSON, which is YAML)."""
    document = read_yaml(text)
    findings = list(document.findings)
    playbook: Playbook | None = None
    if not findings:
        playbook, findings = read_playbook(document.value, kind, worklets=worklets)
    return PlaybookText(playbook, text_problems(document, findings))


def write_playbook_text(playbook: Playbook) -> str:
    """A playbook as YAML; defaults are left out."""
    data = {"forestay": LANGUAGE, **playbook_as_plain(playbook)}
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
    return text


def read_playbook(
    data: object, kind: ExceptionType | None = None, *, worklets: Container[str] | None = None
) -> tuple[Playbook | None, list[FlowProblem]]:
    """Read a document and check its contents: a playbook that can be run, or all errors."""
    if depth_of(data) > MAX_DEPTH:
        return None, [FlowProblem((), f"it is nested more than {MAX_DEPTH} deep")]
    read = Fields()
    record = read.record(
        data, (), ["forestay", "name", "description", "steps"], what="a playbook", needed=["name", "steps"]
    )
    if record.get("forestay", LANGUAGE) != LANGUAGE or record.get("forestay") is True:
        read.wrong(("forestay",), f"add 'forestay: {LANGUAGE}', the version of this language")
    steps = record.get("steps", [])
    if not isinstance(steps, list):
        read.wrong(("steps",), "expected a list of steps")
        steps = []
    playbook = Playbook(
        name=read.text(record.get("name", "-"), ("name",)),
        steps=tuple(_step(read, step, ("steps", place)) for place, step in enumerate(steps)),
        description=read.text(record.get("description", ""), ("description",), empty=True),
    )
    findings = read.findings
    wrong = {finding.path for finding in findings}
    for problem in check_playbook(playbook, kind, worklets=worklets):
        # An error in reading is not reported a second time.
        if not any(problem.path[: len(path)] == path or path[: len(problem.path)] == problem.path for path in wrong):
            findings.append(problem)
    return (None if findings else playbook), findings


def _step(read: Fields, data: object, at: Place) -> PlaybookStep:
    if isinstance(data, str):
        words = data.split()
        data = dict(zip(("action", "target"), words, strict=False)) if 1 <= len(words) <= 2 else {"action": data}
    if not isinstance(data, dict) or "action" not in data:
        read.wrong(at, "a step is its action, such as 'suspend run', or a record with its 'action'")
        return PlaybookStep(Notify("-"))
    known = [action.value for action in ActionKind]
    if data["action"] not in known:
        hint = did_you_mean(data["action"], known) if isinstance(data["action"], str) else ""
        read.wrong((*at, "action"), f"there is no such action{hint}")
        return PlaybookStep(Notify("-"))
    action = ActionKind(data["action"])
    kind = KINDS[action]
    names = [field.name for field in fields(kind) if field.name != "action"]
    needed = [
        field.name
        for field in fields(kind)
        if field.name != "action" and field.default is MISSING and field.default_factory is MISSING
    ]
    record = read.record(data, at, ["action", "when_refused", *names], what=f"the step {action.value}", needed=needed)
    values: dict[str, Any] = {"action": action} if action in STEERING else {}
    for name in names:
        if name in record:
            values[name] = _value(read, action, name, record[name], (*at, name))
        elif name in needed:
            values[name] = _EMPTY[name]
    do: Action = kind(**values)
    refused = record.get("when_refused")
    when = None if refused is None else read.one_of(WhenRefused, refused, (*at, "when_refused"))
    return PlaybookStep(do, when)


_EMPTY: Mapping[str, Any] = {"worklets": (), "worklet": Worklet("-"), "size": 1, "text": "-"}
"""Substitutes for missing values, which were already reported."""


def _value(read: Fields, action: ActionKind, name: str, data: object, at: Place) -> Any:
    if name in _SIZES:
        return read.number_in(size_of, data, at)
    if name in _DURATIONS:
        return read.number_in(duration_of, data, at)
    match name:
        case "target":
            return read.one_of(ActionTarget, data, at)
        case "how":
            return read.one_of(Restaging if action is ActionKind.RESTAGE else Resubmission, data, at)
        case "scope":
            return read.one_of(AvoidScope, data, at)
        case "worklets":
            if not isinstance(data, list):
                read.wrong(at, "expected a list of worklets")
                return (Worklet("-"),)
            return tuple(_worklet(read, record, (*at, place)) for place, record in enumerate(data))
        case "worklet":
            return _worklet(read, data, at)
        case "needs":
            return _needs(read, data, at)
        case "to":
            return tuple(read.texts(data, at))
        case _:
            return read.text(data, at, empty=action is not ActionKind.NOTIFY)


def _worklet(read: Fields, data: object, at: Place) -> Worklet:
    if isinstance(data, str):
        return Worklet(data)
    record = read.record(data, at, ["flow", "give", "take"], what="a worklet", needed=["flow"])
    return Worklet(
        read.text(record.get("flow", "-"), (*at, "flow")),
        read.record(record.get("give", {}), (*at, "give"), None, what="values by the worklet's parameters"),
        read.texts_by_name(record.get("take", {}), (*at, "take")),
    )


def _needs(read: Fields, data: object, at: Place) -> dict[Amount, NeedChange]:
    record = read.record(data, at, [amount.value for amount in Amount], what="needs by name")
    needs: dict[Amount, NeedChange] = {}
    for name, value in record.items():
        amount = Amount(name)
        number = size_of if amount in (Amount.MEMORY, Amount.DISK) else duration_of
        place: Place = (*at, name)
        fields_of = read.record(value, place, ["factor", "to", "at_most"], what="a change of a need")
        factor = fields_of.get("factor")
        if factor is not None and (isinstance(factor, bool) or not isinstance(factor, int | float)):
            read.wrong((*place, "factor"), "expected a number")
            factor = None
        bounds = {
            name: read.number_in(number, fields_of[name], (*place, name))
            for name in ("to", "at_most")
            if name in fields_of
        }
        needs[amount] = NeedChange(
            float(factor) if factor is not None else None, bounds.get("to"), bounds.get("at_most")
        )
    return needs
