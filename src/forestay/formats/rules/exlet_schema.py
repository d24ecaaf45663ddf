"""The JSON Schema of exlets, for editors: what a document may look like.

It says as much as reading a document does, no more: what an exlet means is checked by `check_exlet`. ``scripts/exlet_schema.py`` writes it to
``docs/reference/exlet.schema.json``.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any

from forestay.domain.exlets.exlet import MAX_STEPS, WhenRefused
from forestay.domain.exlets.primitive import (
    KINDS,
    MAX_RECIPIENTS,
    MAX_TEXT,
    MAX_WORKLETS,
    STEERING,
    Action,
    ActionTarget,
    Amount,
    AvoidScope,
    Restaging,
    Resubmission,
)
from forestay.domain.jobs.amounts import DURATION_PATTERN, SIZE_PATTERN
from forestay.formats.rules.exlet_json import LANGUAGE

Schema = dict[str, Any]

ABOUT = {
    Action.REMOVE: "Cancels it: nothing that follows it is executed.",
    Action.SUSPEND: "Suspends it until this playbook continues it.",
    Action.CONTINUE: "Continues what this playbook suspended, and nothing else.",
    Action.RESTART: "Runs the task again from its start.",
    Action.FORCE_COMPLETE: "Marks the task as complete.",
    Action.FORCE_FAIL: "Marks the task as failed; its path continues.",
    Action.COMPENSATE: "Runs worklets in parallel and continues when all have succeeded.",
    Action.SELECT: "Runs a worklet for the late-bound task.",
    Action.RESTAGE: "Stages the job's files again.",
    Action.FREE_SPACE: "Frees space for the job's files.",
    Action.RESERVE_SPACE: "Reserves space for the job's files.",
    Action.RESUBMIT: "Retries the job.",
    Action.REPOLL: "Polls for the first job return the state of its replacement.",
    Action.REREGISTER: "Callbacks of the first job report the completion of its replacement.",
    Action.LADDER: "Retries the job after the wait of the next level of a retry policy.",
    Action.ROLLBACK: "Fails the run; its work is compensated.",
    Action.NOTIFY: "Tells people.",
    Action.AVOID_HOST: "Excludes the host on which the job failed.",
    Action.HOLD: "Holds it for a person; must be the last step.",
}


def exlet_schema() -> Schema:
    """The whole schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Forestay exlet",
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "steps"],
        "properties": {
            "forestay": {"const": LANGUAGE, "description": "The version of this language."},
            "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"},
            "description": {"type": "string", "maxLength": MAX_TEXT},
            "steps": {"type": "array", "minItems": 1, "maxItems": MAX_STEPS, "items": {"$ref": "#/$defs/step"}},
        },
        "$defs": {
            "step": {
                "anyOf": [
                    {"type": "string", "description": "An action without arguments, or with its target: suspend case."},
                    *(_step(action) for action in Action),
                ]
            },
            "worklet": {
                "anyOf": [
                    {"type": "string", "description": "The version of a stored flow."},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["flow"],
                        "properties": {
                            "flow": {"type": "string", "description": "The version of a stored flow."},
                            "give": {"type": "object", "description": "Its parameters; ${params.NAME}, ${tasks.NAME.result} and ${incident.NAME} are substituted."},
                            "take": {"type": "object", "additionalProperties": {"type": "string"}, "description": "The run's parameters, and the worklet's outputs that are assigned to them."},
                        },
                    },
                ]
            },
            "need": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "factor": {"type": "number", "exclusiveMinimum": 1},
                    "to": {"$ref": "#/$defs/amount"},
                    "at_most": {"$ref": "#/$defs/amount"},
                },
            },
            "amount": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": SIZE_PATTERN}, {"type": "string", "pattern": DURATION_PATTERN}]},
            "size": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": SIZE_PATTERN}]},
            "duration": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": DURATION_PATTERN}]},
        },
    }  # fmt: skip


def _step(action: Action) -> Schema:
    kind = KINDS[action]
    names = [one for one in fields(kind) if one.name != "action"]
    needed = [one.name for one in names if one.default is MISSING and one.default_factory is MISSING]
    return {
        "type": "object",
        "description": ABOUT[action],
        "additionalProperties": False,
        "required": ["action", *needed],
        "properties": {
            "action": {"const": action.value},
            **{one.name: _field(action, one.name) for one in names},
            "when_refused": _one_of(WhenRefused),
        },
    }


def _field(action: Action, name: str) -> Schema:
    known: dict[str, Schema] = {
        "target": _one_of(_targets(action)),
        "worklets": {"type": "array", "minItems": 1, "maxItems": MAX_WORKLETS, "items": {"$ref": "#/$defs/worklet"}},
        "worklet": {"$ref": "#/$defs/worklet"},
        "how": _one_of(Restaging if action is Action.RESTAGE else Resubmission),
        "needs": {
            "type": "object",
            "additionalProperties": False,
            "properties": {one.value: {"$ref": "#/$defs/need"} for one in Amount},
        },
        "scope": _one_of(AvoidScope),
        "to": {"type": "array", "maxItems": MAX_RECIPIENTS, "items": {"type": "string"}},
        **{key: {"$ref": "#/$defs/size"} for key in ("size", "buffer")},
        **{key: {"$ref": "#/$defs/duration"} for key in ("seconds", "timeout", "wait")},
    }
    return known.get(name, {"type": "string", "maxLength": MAX_TEXT})


def _targets(action: Action) -> list[ActionTarget]:
    if action in (Action.RESTART, Action.FORCE_COMPLETE, Action.FORCE_FAIL):
        return [ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.ITEM]
    return (
        list(ActionTarget)
        if action in STEERING
        else [ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.ITEM, ActionTarget.CASE]
    )


def _one_of(members: type[StrEnum] | list[ActionTarget]) -> Schema:
    return {"enum": [member.value for member in members]}
