"""What the reference shows is accepted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.formats.flow_json import read_flow
from holdfast.formats.yaml_flow import read_flow_text
from holdfast.formats.yaml_text import read_yaml

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "flows.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if not block.startswith("#")]
FLOWS = [block for block in BLOCKS if block.startswith("holdfast")]
SCATTERS = [line for block in BLOCKS if block.startswith("scatter") for line in block.splitlines()]
TASKS = [block for block in BLOCKS if block.startswith("  ")]


def test_the_page_shows_something_of_each() -> None:
    assert (len(FLOWS), len(SCATTERS), len(TASKS)) == (1, 7, 3)


@pytest.mark.parametrize("text", FLOWS)
def test_shown_flows_can_be_run(text: str) -> None:
    assert read_flow_text(text).problems == ()


@pytest.mark.parametrize("line", SCATTERS)
def test_shown_scatters_are_accepted(line: str) -> None:
    text = f"holdfast: 1\nname: f\nparams: {{samples: [a]}}\ntasks:\n  t:\n    command: [x]\n    {line}\n"
    assert read_flow_text(text).problems == ()


@pytest.mark.parametrize("tasks", TASKS)
def test_shown_tasks_have_the_right_shape(tasks: str) -> None:
    document = read_yaml(f"holdfast: 1\nname: f\ntasks:\n{tasks}")
    assert document.findings == []
    assert read_flow(document.value)[1] == []
