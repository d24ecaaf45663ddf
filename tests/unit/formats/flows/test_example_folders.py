"""The example folders are whole: every flow, exlet and rule in them can be read, and what they name is there."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from forestay.adapters.cel.conditions import CelConditions
from forestay.apps.config.settings import load
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.rules.context import read_context
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.formats.rules.exlet_files import worklet_files
from forestay.formats.rules.exlet_json import read_exlet_text
from forestay.formats.text.yaml_text import read_yaml

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
CONCERT = EXAMPLES / "organise-concert"
SLOT = EXAMPLES / "advertising-slot"
EXLETS = sorted([*CONCERT.glob("exlets/*.yaml"), CONCERT / "cover-the-stage.yaml"])
RULES = sorted(CONCERT.glob("rules/*.yaml"))


@pytest.mark.parametrize(
    "file",
    sorted([CONCERT / "organise-concert.yaml", SLOT / "advertising-slot.yaml", *CONCERT.glob("worklets/*.yaml")]),
    ids=lambda file: file.name,
)
def test_a_flow_can_be_run(file: Path) -> None:
    assert read_flow_text(file.read_text(encoding="utf-8")).problems == ()


@pytest.mark.parametrize("file", EXLETS, ids=lambda file: file.name)
def test_an_exlet_is_good_and_its_worklets_are_there(file: Path) -> None:
    read = read_exlet_text(file.read_text(encoding="utf-8"))
    assert read.exlet is not None, read.problems
    assert read.exlet.name == file.stem
    for name in worklet_files(read.exlet):
        worklet = read_flow_text((file.parent / name).read_text(encoding="utf-8")).flow
        assert worklet is not None, name


@pytest.mark.ledger("P1-32")
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_a_rule_is_true_on_its_cornerstone_and_its_exlet_fits(file: Path) -> None:
    rule = read_yaml(file.read_text(encoding="utf-8")).value
    assert isinstance(rule, dict)
    context, wrong = read_context(rule["context"])
    conditions = CelConditions()
    assert (wrong, conditions.compile(rule["condition"])) == ((), ())
    assert conditions.over(context)(rule["condition"]) is True
    text = (CONCERT / "exlets" / f"{rule['conclusion']['exlet']}.yaml").read_text(encoding="utf-8")
    exlet = read_exlet_text(text).exlet
    assert exlet is not None
    assert check_exlet(exlet, ExceptionType(rule["type"])) == []


def test_the_settings_of_the_slot_are_settings() -> None:
    file = SLOT / "forestay.toml"
    settings = load({"FORESTAY_CONFIG": str(file)})
    assert settings.ladder_book["house"].tries == 4
    assert tomllib.loads(file.read_text(encoding="utf-8"))["unanswered"] == {"*": "dispatch"}
