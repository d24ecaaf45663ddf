"""The JSON Schema of flows, for editors.

It covers as much as reading a document does, no more: the semantics of a flow (references, cycles, bounds) are checked by `check_flow`.
``scripts/flow_schema.py`` writes it to ``docs/reference/flow.schema.json``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from forestay.domain.flows.definition.flow import DeadlineAction, OnFailure, WhenFailed
from forestay.domain.flows.definition.flow_pattern import AtMaximum, BranchSelection
from forestay.domain.flows.definition.flow_version import LANGUAGE
from forestay.domain.jobs.amounts import DURATION_PATTERN, SIZE_PATTERN
from forestay.domain.jobs.checkpoint import SIGNALS
from forestay.domain.jobs.inputs import Staging
from forestay.domain.jobs.job_secrets import SecretSource
from forestay.domain.jobs.specification import Effects, WhenExhausted
from forestay.formats.flows.flow_json import JOB_FIELDS, KINDS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_MAYBE_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _record(properties: Schema, *, required: list[str] | None = None, description: str = "") -> Schema:
    out: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        out["required"] = required
    if description:
        out["description"] = description
    return out


def _by_name(values: Schema, description: str = "") -> Schema:
    out: Schema = {"type": "object", "additionalProperties": values}
    return out | ({"description": description} if description else {})


def _one_of(kind: type[StrEnum], description: str) -> Schema:
    return {"enum": [member.value for member in kind], "description": description}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _optional(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _job() -> Schema:
    return {
        "command": _said({"type": "array", "items": _ref("word"), "minItems": 1}, "The words of the command; ${…} is substituted. A word that is a reference to a list becomes several words."),
        "run": {"anyOf": [_TEXT, {"type": "array", "items": _ref("word"), "minItems": 1}], "description": "A line for the shell, or a list of words as 'command'."},
        "environment": _by_name(_ref("word"), "Environment variables, the same for all jobs of a scatter."),
        "resources": _said(_ref("resources"), "What the job needs."),
        "inputs": _by_name(_TEXT, "Files by their name in the job's folder: an address, or the output of a task."),
        "staging": _one_of(Staging, "How inputs are staged: four at once, or one after the other."),
        "outputs": _by_name(_TEXT, "Files that must exist when the job succeeds: a pattern by the name that other tasks use."),
        "result": _said(_MAYBE_TEXT, "A JSON file that the job writes; its content is tasks.NAME.result."),
        "container": _said(_MAYBE_TEXT, "The image that the command runs in: a name at a registry, oci:/folder:tag or a whole path; it may be a reference, but not to the scatter's variables."),
        "effects": _one_of(Effects, "external: a second attempt would repeat external effects, so after a stop a person decides; resumable: a second attempt continues safely."),
        "max_attempts": _said(_WHOLE, "Maximum number of attempts: 1 to 100."),
        "retry_wait": _said(_ref("duration"), "The wait before the second attempt; doubled for each one after it."),
        "when_exhausted": _one_of(WhenExhausted, "What happens to a job whose attempts are used up."),
        "expected_runtime": _said(_optional(_ref("duration")), "An alert is raised when a job takes longer."),
        "priority": _said(_WHOLE, "-1000 to 1000; higher comes first."),
        "labels": _by_name(_ref("word"), "Labels of the jobs."),
        "wait": {"type": "boolean", "description": "false: fire and forget."},
        "requires": _said(_MAYBE_TEXT, "A condition over what pilots say of themselves: gpu.model == \"A100\" && os == \"el9\"."),
        "licences": _by_name(_WHOLE, "Seats of licences that each job has while it runs."),
        "checkpoint": _said(_record({
            "files": _said({"type": "array", "items": _TEXT, "minItems": 1}, "Patterns of files in the job's folder."),
            "signal": _said({"enum": list(SIGNALS)}, "Sent before the time of the job or of its pilot ends."),
            "every": _said(_ref("duration"), "Commit the files also while the job runs, so often."),
            "grace": _said(_ref("duration"), "The time to write the files and to end after the signal."),
        }, required=["files"]), "The files from which the next attempt continues."),
        "secrets": _by_name({"anyOf": [_TEXT, *(_record({source.value: _TEXT, "as": {"enum": ["variable", "file"]}}, required=[source.value]) for source in SecretSource)]}, "Values that the pilot gives to the job, by variable: file:NAME or vault:PATH#KEY; with {file: NAME, as: file} the variable has the path of a file with the value."),
    }  # fmt: skip


def _source() -> Schema:
    end: Schema = {"type": ["integer", "string"]}
    until = _record({"file": _MAYBE_TEXT, "count": _optional(_WHOLE), "quiet": _optional(_ref("duration"))})
    return {
        "anyOf": [
            {"type": "array", "description": "The values themselves."},
            {"type": "string", "description": "A reference to a list: ${params.samples}."},
            _record(
                {"range": {"type": "array", "prefixItems": [end, end, _WHOLE], "minItems": 2, "maxItems": 3}},
                required=["range"],
                description="Whole numbers: [first, end] or [first, end, step].",
            ),
            _record({"files": _TEXT}, required=["files"], description="The files that match when the task starts."),
            _record({"lines": _TEXT}, required=["lines"], description="The lines of a file."),
            _record(
                {"watch": _TEXT, "until": until},
                required=["watch"],
                description="Files as they appear, until an end.",
            ),
        ]
    }


def _task() -> Schema:
    common: Schema = {
        "after": _said({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}, "Tasks that must have finished before."),
        "when": _said(_ref("condition"), "The task is skipped if this is false."),
        "scatter": _by_name(_source(), "One job for each value; several variables make the product."),
        "tolerate": _said(_WHOLE, "The number of scatter elements that may fail."),
        "compensate": _said(_optional(_ref("compensation")), "What compensates the task if the run fails later."),
        "action": _said(_TEXT, "The action under which the compensation library has what compensates the task."),
        "deadline": _said(_optional(_ref("deadline")), "Measured from the task's start."),
        "when_failed": _one_of(WhenFailed, "What follows a failure: the run fails, a person is asked, or the run continues."),
    }  # fmt: skip
    params = _by_name({}, "Parameters of the flow.")
    outputs = _by_name({}, "Values from inside, for the tasks after.")
    own: dict[str, Schema] = {
        "command": _job(),
        "run": _job(),
        "flow": {
            "flow": _said(_TEXT, "A flow under 'flows', or a flow's version."),
            "domain": _said(_MAYBE_TEXT, "Where it may run: a peer by name, or 'any' domain; default: here."),
            "params": params,
        },
        "worklet": {
            "worklet": _said(_TEXT, "The name of the late-bound task; its flow is chosen when it starts."),
            "default": _said(_MAYBE_TEXT, "The flow to run if none is bound: one under 'flows', or a version."),
            "params": params,
        },
        "merge": {"merge": _by_name({}, "Values of earlier tasks, collected under this task's name.")},
        "ask": {"ask": _ref("question")},
        "wait_for": {"wait_for": _ref("event_wait")},
        "loop": {"loop": _ref("loop"), "outputs": outputs},
        "choose": {"choose": _ref("choice"), "outputs": outputs},
    }
    kinds: list[Schema] = []
    for kind in KINDS:
        fields = {name: field for name, field in own[kind].items() if name == kind or name not in ("command", "run")}
        kinds.append(_record({**common, **fields}, required=[kind]))
    return {"description": "What a task does: one of " + ", ".join(KINDS) + ".", "anyOf": kinds}


def flow_schema() -> Schema:
    """The whole schema."""
    tasks = _by_name(
        _ref("task"), "Tasks by name. A task starts when all tasks that it comes after or refers to have finished."
    )
    flow: Schema = {
        "forestay": {"const": LANGUAGE, "description": "The version of this language."},
        "name": _said(_TEXT, "Letters, digits, '-' and '_'."),
        "description": {"description": "For people."},
        "params": _by_name({}, "Parameters and their defaults; null: a run must give one."),
        "on_failure": _one_of(OnFailure, "What happens to the rest when a task has failed."),
        "reuse": _said(
            {"type": "boolean"}, "Reuse results of earlier runs where command, environment and inputs are the same."
        ),
        "deadline": _said(_optional(_ref("deadline")), "Measured from the run's start."),
        "flows": _by_name(_ref("subflow"), "Sub-flows by the name that tasks use."),
        "tasks": tasks,
        "outputs": _by_name({}, "What the run returns."),
    }
    undo = _job() | {"tries": _said(_WHOLE, "How often it is tried before a person is asked.")}
    undo_kinds = [
        _record({name: field for name, field in undo.items() if name == kind or name not in ("command", "run")}, required=[kind])
        for kind in ("command", "run")
    ]  # fmt: skip
    assert set(_job()) == set(JOB_FIELDS)  # noqa: S101 - a new field of a job belongs here too
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Forestay flow",
        **_record(flow, required=["forestay", "name", "tasks"]),
        "$defs": {
            "task": _task(),
            "subflow": _record(flow, required=["name", "tasks"]),
            "word": {"type": ["string", "number", "boolean"]},
            "condition": {"type": ["string", "boolean"]},
            "duration": {"anyOf": [_WHOLE, {"type": "string", "pattern": DURATION_PATTERN}]},
            "size": {"anyOf": [_WHOLE, {"type": "string", "pattern": SIZE_PATTERN}]},
            "deadline": {
                "anyOf": [
                    _ref("duration"),
                    _record({"seconds": _ref("duration"), "then": _one_of(DeadlineAction, "")}, required=["seconds"]),
                ]
            },
            "resources": _record(
                {
                    "cpus": _WHOLE,
                    "memory": _ref("size"),
                    "disk": _ref("size"),
                    "gpus": _WHOLE,
                    "wall": _optional(_ref("duration")),
                    "nodes": _WHOLE,
                }
            ),
            "compensation": {"anyOf": undo_kinds},
            "question": _record(
                {
                    "title": _said(_TEXT, "The question in one line."),
                    "text": _said(_MAYBE_TEXT, "What the person needs to know."),
                    "form": _said(_ref("form"), "The fields of the answer; without them the person only confirms."),
                    "who": _said(
                        {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
                        "Who may answer: owner, role:NAME or user:NAME; default: owner and role:operator.",
                    ),
                    "default": _said(_by_name({}), "The answer if nobody gives one before the task's deadline."),
                },
                required=["title"],
                description="A question to a person; the answer is the task's outputs.",
            ),
            "event_wait": _record(
                {
                    "event": _said(_TEXT, "The name of the event."),
                    "key": _said(_MAYBE_TEXT, "Which of the events of this name: the sender gives the same key."),
                    "default": _said(_optional(_by_name({})), "The outputs if no event comes before the deadline."),
                },
                required=["event"],
                description="Waits for an event from outside; its data are the task's outputs.",
            ),
            "form": {
                "type": "object",
                "description": "A JSON Schema object whose properties are texts, numbers or truth values.",
            },
            "loop": _record(
                {
                    "at_most": _said(_WHOLE, "The maximum number of rounds."),
                    "while": _said(_ref("condition"), "Evaluated before each round."),
                    "until": _said(_ref("condition"), "Evaluated after each round."),
                    "then": _one_of(AtMaximum, "What happens when the condition is not met after the last round."),
                    "tasks": tasks,
                },
                required=["at_most", "tasks"],
            ),
            "choice": _record(
                {
                    "take": _one_of(BranchSelection, "Every branch whose condition is true, or the first."),
                    "branches": _by_name(
                        _record({"when": _ref("condition"), "tasks": tasks}, required=["when", "tasks"])
                    ),
                    "otherwise": _record({"tasks": tasks}, required=["tasks"]),
                },
                required=["branches"],
            ),
        },
    }
