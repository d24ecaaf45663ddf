"""What the reference shows is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forestay.formats.flows.flow_json import read_flow
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.formats.text.yaml_text import read_yaml

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "flows.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if not block.startswith("#")]
FLOWS = [block for block in BLOCKS if block.startswith("forestay")]
SCATTERS = [line for block in BLOCKS if block.startswith("scatter") for line in block.splitlines()]
INPUTS = [block for block in BLOCKS if block.startswith("inputs")]
TASKS = [block for block in BLOCKS if block.startswith("  ")]


def test_the_page_shows_something_of_each() -> None:
    assert (len(FLOWS), len(SCATTERS), len(INPUTS), len(TASKS)) == (1, 8, 1, 5)


@pytest.mark.parametrize("text", FLOWS)
def test_shown_flows_can_be_run(text: str) -> None:
    assert read_flow_text(text).problems == ()


@pytest.mark.parametrize("line", SCATTERS)
def test_shown_scatters_are_accepted(line: str) -> None:
    before = "  align: {command: [x], scatter: {s: [a]}, outputs: {bam: x.bam}}\n"
    text = f"forestay: 1\nname: f\nparams: {{samples: [a]}}\ntasks:\n{before}  t:\n    command: [x]\n    {line}\n"
    assert read_flow_text(text).problems == ()


@pytest.mark.parametrize("block", INPUTS)
def test_shown_inputs_are_accepted(block: str) -> None:
    before = "".join(f"  {name}: {{command: [x], outputs: {{model: m, count: c}}}}\n" for name in ("train", "count"))
    inputs = block.replace("\n", "\n    ")
    text = f"forestay: 1\nname: f\ntasks:\n{before}  t:\n    command: [x]\n    scatter: {{sample: [a]}}\n    {inputs}\n"
    assert read_flow_text(text).problems == ()


@pytest.mark.parametrize("tasks", TASKS)
def test_shown_tasks_have_the_right_shape(tasks: str) -> None:
    document = read_yaml(f"forestay: 1\nname: f\ntasks:\n{tasks}")
    assert document.findings == []
    assert read_flow(document.value)[1] == []
