"""The JSON Schema of rule files, for editors. ``scripts/rules_schema.py`` writes it to the docs and into the package."""

from __future__ import annotations

from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_tree import RuleState
from forestay.formats.rules.playbook_json import LANGUAGE
from forestay.formats.rules.playbook_schema import playbook_schema
from forestay.formats.rules.rule_file import (
    MAX_CONDITION,
    MAX_DESCRIPTION,
    MAX_RULES,
    NAME_PATTERN,
    NEEDED,
    SET_PATTERN,
    TASK_PATTERN,
)


def rule_file_schema() -> dict[str, Any]:
    """The whole schema."""
    playbook = playbook_schema()
    conclusion = {
        "anyOf": [
            _record({"playbook": playbook["properties"]["name"]}, ["playbook"]),
            _record({"steps": playbook["properties"]["steps"]}, ["steps"]),
        ]
    }
    rule = {
        "name": {"type": "string", "pattern": NAME_PATTERN, "description": "Identifies the rule in its rule set."},
        "type": {"enum": [kind.value for kind in ExceptionType], "description": "The exception type."},
        "task": {"type": "string", "pattern": TASK_PATTERN, "description": "Only for this task; * or nothing: any."},
        "condition": {
            "anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_CONDITION}, {"type": "boolean"}],
            "description": "The condition, in CEL.",
        },
        "conclusion": conclusion,
        "context": {"type": "object", "description": "An example of what it answers; the condition is true for it."},
        "description": {"type": "string", "maxLength": MAX_DESCRIPTION, "description": "Why, in your words."},
        "state": {
            "enum": [state.value for state in RuleState],
            "description": "active: apply promotes it, after a replay. Nothing: it keeps the state it has.",
        },
    }
    whole = {
        "forestay": {"const": LANGUAGE, "description": "The version of this language."},
        "rule_set": {"type": "string", "pattern": SET_PATTERN, "description": "domain/site unless given."},
        "rules": {"type": "array", "maxItems": MAX_RULES, "items": _record(rule, list(NEEDED))},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A file of Forestay rules",
        **_record(whole, ["rules"]),
        "$defs": playbook["$defs"],
    }


def _record(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}
