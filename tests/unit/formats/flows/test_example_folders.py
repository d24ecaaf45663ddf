"""The example folders are whole: every flow, playbook and rule in them can be read, and what they name is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forestay.adapters.cel.conditions import CelConditions
from forestay.apps.config.settings import load
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.rules.context import read_context
from forestay.formats.flows.compensation_yaml import read_compensation_text
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.formats.rules.playbook_files import worklet_files
from forestay.formats.rules.playbook_json import read_playbook_text
from forestay.formats.text.yaml_text import read_yaml

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
CONCERT = EXAMPLES / "organise-concert"
SLOT = EXAMPLES / "advertising-slot"
PLAYBOOKS = sorted([*CONCERT.glob("playbooks/*.yaml"), CONCERT / "cover-the-stage.yaml"])
RULES = sorted(CONCERT.glob("rules/*.yaml"))


@pytest.mark.parametrize(
    "file",
    sorted([CONCERT / "organise-concert.yaml", *SLOT.glob("*.yaml"), *CONCERT.glob("worklets/*.yaml")]),
    ids=lambda file: file.name,
)
def test_a_flow_can_be_run(file: Path) -> None:
    assert read_flow_text(file.read_text(encoding="utf-8")).problems == ()


def test_each_action_of_the_slots_approval_has_its_compensation() -> None:
    flow = read_flow_text((SLOT / "approval.yaml").read_text(encoding="utf-8")).flow
    assert flow is not None
    actions = {task.action for task in flow.tasks if task.action}
    for action in actions:
        registered = read_compensation_text((SLOT / "compensations" / f"{action}.yaml").read_text(encoding="utf-8"))
        assert registered.problems == ()
        assert registered.registered is not None
        assert registered.registered.action == action
    assert {file.stem for file in SLOT.glob("compensations/*.yaml")} == actions


@pytest.mark.parametrize("file", PLAYBOOKS, ids=lambda file: file.name)
def test_a_playbook_is_good_and_its_worklets_are_there(file: Path) -> None:
    read = read_playbook_text(file.read_text(encoding="utf-8"))
    assert read.playbook is not None, read.problems
    assert read.playbook.name == file.stem
    for name in worklet_files(read.playbook):
        worklet = read_flow_text((file.parent / name).read_text(encoding="utf-8")).flow
        assert worklet is not None, name


@pytest.mark.ledger("P1-32")
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_a_rule_is_true_on_its_reference_incident_and_its_playbook_fits(file: Path) -> None:
    rule = read_yaml(file.read_text(encoding="utf-8")).value
    assert isinstance(rule, dict)
    context, wrong = read_context(rule["context"])
    conditions = CelConditions()
    assert (wrong, conditions.compile(rule["condition"])) == ((), ())
    assert conditions.over(context)(rule["condition"]) is True
    text = (CONCERT / "playbooks" / f"{rule['conclusion']['playbook']}.yaml").read_text(encoding="utf-8")
    playbook = read_playbook_text(text).playbook
    assert playbook is not None
    assert check_playbook(playbook, ExceptionType(rule["type"])) == []


def test_the_settings_of_the_slot_are_settings() -> None:
    file = SLOT / "forestay.toml"
    settings = load({"FORESTAY_CONFIG": str(file)})
    assert settings.retry_policy_table["default"].tries == 4
    assert tomllib.loads(file.read_text(encoding="utf-8"))["unanswered"] == {"*": "dispatch"}
