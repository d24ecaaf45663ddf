"""Files of rules: read with every error in its place; the schema says the same; the starter rules are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from scripts.rules_schema import PLACES, described

from forestay.apps.rule_file_check import check_rule_file
from forestay.domain.exceptions.causes.cause import Cause
from forestay.formats.rules.rule_file import starter_rules
from forestay.formats.rules.rule_file_schema import rule_file_schema

RULE: dict[str, Any] = {
    "name": "grow",
    "type": "abort",
    "condition": 'cause == "memory"',
    "conclusion": {"playbook": "more-memory"},
    "context": {"cause": "memory"},
}


def problems(*rules: dict[str, Any], **more: Any) -> list[str]:
    return [
        f"{problem.where}: {problem.message}"
        for problem in check_rule_file(json.dumps({"rules": list(rules), **more})).problems
    ]


@pytest.mark.finding("F-A12")
def test_the_starter_rules_are_right_and_answer_the_common_failures() -> None:
    read = check_rule_file(starter_rules())
    assert read.problems == ()
    assert {rule["context"]["cause"] for rule in read.rules} == {
        Cause.MEMORY, Cause.TIME, Cause.NODE, Cause.PREEMPTED, Cause.NETWORK
    }  # fmt: skip
    needs = [step["needs"] for rule in read.rules for step in rule["conclusion"]["steps"] if "needs" in step]
    assert needs == [
        {"memory": {"factor": 2.0, "at_most": 256 * 2**30}},
        {"wall": {"factor": 2.0, "at_most": 7 * 86_400}},
    ]
    assert all(re.search(r"job\.attempt < \d", rule["condition"]) for rule in read.rules), "each has an end"
    assert read.states == {}, "none acts before somebody promoted it"


def test_every_error_is_reported_in_its_place() -> None:
    assert problems(RULE) == []
    text = (
        "rules:\n"
        "  - name: 1x\n"
        "    type: abrot\n"
        "    condition: cause ==\n"
        "    conclusion: {steps: [{action: resubmitt}]}\n"
        "    context: {hots: 1}\n"
        "    stat: active\n"
    )
    read = check_rule_file(text)
    assert read.rules == ()
    assert [(problem.line, problem.where) for problem in read.problems] == [
        (2, "rules[0].name"),
        (3, "rules[0].type"),
        (5, "rules[0].conclusion.steps[0].action"),
        (6, "rules[0].context"),
        (7, "rules[0].stat"),
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"condition": "cause =="}, "rules[0].condition"),
        ({"condition": "cuase == 'memory'"}, "cuase"),
        ({"condition": "cause == 'disk'"}, "not true for the context"),
        ({"condition": "x" * 5000}, "longer than 4096"),
        ({"conclusion": {}}, "'playbook' or 'steps'"),
        ({"conclusion": {"playbook": "a b"}}, "not a valid name of a playbook"),
        ({"task": "a b"}, "not the name of a task"),
        ({"description": "x" * 2001}, "longer than 2000"),
        ({"state": "on"}, "shadow, active"),
        ({"name": "x" * 41}, "not a valid name"),
    ],
)
def test_what_is_wrong_with_a_rule(changes: dict[str, Any], words: str) -> None:
    (problem,) = problems(RULE | changes)
    assert words in problem


def test_what_is_wrong_with_a_file() -> None:
    assert problems(RULE, RULE) == ["rules[1].name: there are two rules 'grow'"]
    assert "is not a rule set" in problems(RULE, rule_set="site")[0]
    assert "version of this language" in problems(RULE, forestay=2)[0]
    assert [problem.where for problem in check_rule_file("rules: {}").problems] == ["rules"]
    assert [problem.message[:12] for problem in check_rule_file("rules: [").problems] == ["Invalid YAML"]


def test_the_schema_says_the_same() -> None:
    schema = jsonschema_rs.validator_for(rule_file_schema())
    assert schema.is_valid(yaml.safe_load(starter_rules()))
    assert schema.is_valid({"forestay": 1, "rules": [RULE | {"state": "active", "task": "*", "description": "why"}]})
    wrong: list[dict[str, Any]] = [
        {"name": "1x"}, {"type": "abrot"}, {"conclusion": {}}, {"state": "on"}, {"more": 1}
    ]  # fmt: skip
    for changes in wrong:
        assert not schema.is_valid({"rules": [RULE | changes]}), changes
    for missing in RULE:
        rule = {key: value for key, value in RULE.items() if key != missing}
        assert not schema.is_valid({"rules": [rule]}), missing


def test_the_published_schemas_are_current() -> None:
    for place in PLACES:
        assert place.read_text(encoding="utf-8") == described()


def test_the_pre_commit_hook_checks_files_of_rules(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((Path(__file__).parents[4] / ".pre-commit-hooks.yaml").read_text())
    assert [bool(re.search(hook["files"], name)) for name in ("rules.yaml", "site/gpu-rules.yml", "rulesets.yaml")] == [
        True, True, False,
    ]  # fmt: skip
    good, wrong = tmp_path / "rules.yaml", tmp_path / "other-rules.yaml"
    good.write_text(starter_rules())
    wrong.write_text("rules: [{name: a}]\n")
    program, *words = hook["entry"].split()
    command = [Path(sys.executable).with_name(program), *words]
    assert subprocess.run([*command, good], check=False, stdout=subprocess.DEVNULL).returncode == 0
    done = subprocess.run([*command, good, wrong], check=False, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert f"{wrong}:1:9: rules[0]: 'condition' is missing" in done.stdout
