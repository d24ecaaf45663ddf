"""Rule files that people keep in git: every error is reported with its position; sent as `PUT /v1/rules/LEVEL/NAME`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.flow_problem import Place
from forestay.domain.playbooks.playbook import step_as_plain
from forestay.domain.playbooks.playbook_check import NAME
from forestay.domain.rules.context import Context, read_context
from forestay.domain.rules.rule_tree import RuleState
from forestay.formats.flows.yaml_flow import TextProblem, text_problems
from forestay.formats.rules.playbook_json import LANGUAGE, read_playbook
from forestay.formats.text.document_fields import Fields
from forestay.formats.text.yaml_text import read_yaml

FIELDS = ("name", "type", "task", "condition", "conclusion", "context", "description", "state")
NEEDED = ("name", "type", "condition", "conclusion", "context")
DEFAULT_SET = "domain/site"
SET_PATTERN = r"^(flow|domain|pack)/[A-Za-z_][A-Za-z0-9_.-]{0,99}$"
NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.-]{0,39}$"
TASK_PATTERN = r"^(\*|[A-Za-z_][A-Za-z0-9_.-]{0,99})?$"
MAX_RULES = 200
MAX_CONDITION = 4096
MAX_DESCRIPTION = 2000

CheckCondition = Callable[[str, Context], Sequence[str]]
"""Returns all errors of a condition that should be true for a context."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The result of reading a file: its rules, or problems."""

    rule_set: str
    rules: tuple[Mapping[str, Any], ...]
    """In the form that the interface accepts."""
    states: Mapping[str, str]
    """The states that the file requests, by rule name; a rule without an entry keeps its state."""
    problems: tuple[TextProblem, ...] = ()


def starter_rules() -> str:
    """The text of the rules that come with Forestay."""
    return (files("forestay.formats.rules") / "starter_rules.yaml").read_text(encoding="utf-8")


def read_rule_file(text: str, check_condition: CheckCondition = lambda _text, _context: ()) -> RuleFile:
    """Read and check a file of rules in YAML (or JSON, which is YAML)."""
    document = read_yaml(text)
    read = Fields()
    read.findings += document.findings
    rules: list[Mapping[str, Any]] = []
    states: dict[str, str] = {}
    rule_set = DEFAULT_SET
    if not document.findings:
        record = read.record(
            document.value, (), ["forestay", "rule_set", "rules"], what="a file of rules", needed=["rules"]
        )
        if record.get("forestay", LANGUAGE) != LANGUAGE or record.get("forestay") is True:
            read.wrong(("forestay",), f"add 'forestay: {LANGUAGE}', the version of this language")
        rule_set = read.text(record.get("rule_set", DEFAULT_SET), ("rule_set",))
        if not re.fullmatch(SET_PATTERN, rule_set):
            read.wrong(("rule_set",), f"{rule_set!r} is not a rule set; write {DEFAULT_SET}, flow/NAME or pack/NAME")
        entries = record.get("rules", [])
        if not isinstance(entries, list):
            read.wrong(("rules",), "expected a list of rules")
            entries = []
        if len(entries) > MAX_RULES:
            read.wrong(("rules",), f"a file has at most {MAX_RULES} rules")
        names: set[str] = set()
        for place, entry in enumerate(entries):
            rule, state = _rule(read, entry, ("rules", place), check_condition)
            if rule["name"] in names:
                read.wrong(("rules", place, "name"), f"there are two rules {rule['name']!r}")
            names.add(rule["name"])
            rules.append(rule)
            if state is not None:
                states[rule["name"]] = state.value
    problems = text_problems(document, read.findings)
    return RuleFile(rule_set, () if problems else tuple(rules), states, problems)


def _rule(
    read: Fields, data: object, at: Place, check_condition: CheckCondition
) -> tuple[Mapping[str, Any], RuleState | None]:
    before = len(read.findings)
    record = read.record(data, at, FIELDS, what="a rule", needed=NEEDED)
    name = read.text(record.get("name", "-"), (*at, "name"))
    if "name" in record and not re.fullmatch(NAME_PATTERN, name):
        read.wrong((*at, "name"), f"{name!r} is not a valid name: letters, digits, '_', '.' and '-', at most 40")
    kind = read.one_of(ExceptionType, record["type"], (*at, "type")) if "type" in record else ExceptionType.ABORT
    task = read.text(record.get("task", ""), (*at, "task"), empty=True)
    if not re.fullmatch(TASK_PATTERN, task):
        read.wrong((*at, "task"), f"{task!r} is not the name of a task")
    description = read.text(record.get("description", ""), (*at, "description"), empty=True)
    if len(description) > MAX_DESCRIPTION:
        read.wrong((*at, "description"), f"it is longer than {MAX_DESCRIPTION} characters")
    conclusion = _conclusion(read, record.get("conclusion", {"playbook": "-"}), (*at, "conclusion"), kind)
    context = read.record(record.get("context", {}), (*at, "context"), None, what="the context")
    known, wrong = read_context(context)
    for problem in wrong:
        read.wrong((*at, "context"), problem)
    condition = read.condition(record.get("condition", "true"), (*at, "condition"))
    if len(condition) > MAX_CONDITION:
        read.wrong((*at, "condition"), f"it is longer than {MAX_CONDITION} characters")
    elif len(read.findings) == before:
        for problem in check_condition(condition, known):
            read.wrong((*at, "condition"), problem)
    state = read.one_of(RuleState, record["state"], (*at, "state")) if "state" in record else None
    rule = {"name": name, "type": kind.value, "task": task, "condition": condition, "conclusion": conclusion}
    return {**rule, "context": context, "description": description}, state


def _conclusion(read: Fields, data: object, at: Place, kind: ExceptionType) -> Mapping[str, Any]:
    record = read.record(data, at, ["playbook", "steps"], what="a conclusion")
    if ("playbook" in record) == ("steps" in record):
        read.wrong(at, "a conclusion has a 'playbook' or 'steps'")
        return {}
    if "playbook" in record:
        playbook_name = read.text(record["playbook"], (*at, "playbook"))
        if playbook_name != "-" and not NAME.fullmatch(playbook_name):
            read.wrong((*at, "playbook"), f"{playbook_name!r} is not a valid name of a playbook")
        return {"playbook": playbook_name}
    playbook, findings = read_playbook({"name": "rule", "steps": record["steps"]}, kind)
    for finding in findings:
        read.wrong((*at, *finding.path), finding.message)
    return {"steps": [step_as_plain(step) for step in playbook.steps]} if playbook is not None else {}
