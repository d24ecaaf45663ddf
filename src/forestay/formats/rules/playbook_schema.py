"""The JSON Schema of playbooks, for editors.

It covers as much as reading a document does, no more: the semantics of a playbook are checked by `check_playbook`. ``scripts/playbook_schema.py`` writes it to
``docs/reference/playbook.schema.json``.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any

from forestay.domain.jobs.amounts import DURATION_PATTERN, SIZE_PATTERN
from forestay.domain.playbooks.action import (
    KINDS,
    MAX_RECIPIENTS,
    MAX_TEXT,
    MAX_WORKLETS,
    STEERING,
    ActionKind,
    ActionTarget,
    Amount,
    AvoidScope,
    Restaging,
    Resubmission,
)
from forestay.domain.playbooks.playbook import MAX_STEPS, WhenRefused
from forestay.formats.rules.playbook_json import LANGUAGE

Schema = dict[str, Any]

ABOUT = {
    ActionKind.REMOVE: "Cancels it: nothing that follows it is executed.",
    ActionKind.SUSPEND: "Suspends it until this playbook continues it.",
    ActionKind.CONTINUE: "Continues what this playbook suspended, and nothing else.",
    ActionKind.RESTART: "Runs the task again from its start.",
    ActionKind.FORCE_COMPLETE: "Marks the task as complete.",
    ActionKind.FORCE_FAIL: "Marks the task as failed; its path continues.",
    ActionKind.COMPENSATE: "Runs worklets in parallel and continues when all have succeeded.",
    ActionKind.SELECT: "Runs a worklet for the late-bound task.",
    ActionKind.RESTAGE: "Stages the job's files again.",
    ActionKind.REMAKE: "Runs the job that made a lost input again, then retries the job; not for jobs with external effects.",
    ActionKind.FREE_SPACE: "Frees space for the job's files.",
    ActionKind.RESERVE_SPACE: "Reserves space for the job's files.",
    ActionKind.RESUBMIT: "Retries the job.",
    ActionKind.REPOLL: "Polls for the first job return the state of its replacement.",
    ActionKind.REREGISTER: "Callbacks of the first job report the completion of its replacement.",
    ActionKind.RETRY: "Retries the job after the wait of the next level of a retry policy.",
    ActionKind.ROLLBACK: "Fails the run; its work is compensated.",
    ActionKind.NOTIFY: "Tells people.",
    ActionKind.AVOID_HOST: "Excludes the host on which the job failed.",
    ActionKind.HOLD: "Holds it for a person; must be the last step.",
}


def playbook_schema() -> Schema:
    """The whole schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Forestay playbook",
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
                    {"type": "string", "description": "An action without arguments, or with its target: suspend run."},
                    *(_step(action) for action in ActionKind),
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


def _step(action: ActionKind) -> Schema:
    kind = KINDS[action]
    names = [field for field in fields(kind) if field.name != "action"]
    needed = [field.name for field in names if field.default is MISSING and field.default_factory is MISSING]
    return {
        "type": "object",
        "description": ABOUT[action],
        "additionalProperties": False,
        "required": ["action", *needed],
        "properties": {
            "action": {"const": action.value},
            **{field.name: _field(action, field.name) for field in names},
            "when_refused": _one_of(WhenRefused),
        },
    }


def _field(action: ActionKind, name: str) -> Schema:
    known: dict[str, Schema] = {
        "target": _one_of(_targets(action)),
        "worklets": {"type": "array", "minItems": 1, "maxItems": MAX_WORKLETS, "items": {"$ref": "#/$defs/worklet"}},
        "worklet": {"$ref": "#/$defs/worklet"},
        "how": _one_of(Restaging if action is ActionKind.RESTAGE else Resubmission),
        "needs": {
            "type": "object",
            "additionalProperties": False,
            "properties": {amount.value: {"$ref": "#/$defs/need"} for amount in Amount},
        },
        "scope": _one_of(AvoidScope),
        "to": {"type": "array", "maxItems": MAX_RECIPIENTS, "items": {"type": "string"}},
        **{key: {"$ref": "#/$defs/size"} for key in ("size", "buffer")},
        **{key: {"$ref": "#/$defs/duration"} for key in ("seconds", "timeout", "wait")},
    }
    return known.get(name, {"type": "string", "maxLength": MAX_TEXT})


def _targets(action: ActionKind) -> list[ActionTarget]:
    if action in (ActionKind.RESTART, ActionKind.FORCE_COMPLETE, ActionKind.FORCE_FAIL):
        return [ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.TASK]
    return (
        list(ActionTarget)
        if action in STEERING
        else [ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.TASK, ActionTarget.RUN]
    )


def _one_of(members: type[StrEnum] | list[ActionTarget]) -> Schema:
    return {"enum": [member.value for member in members]}
