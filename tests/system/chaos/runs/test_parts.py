"""The parts themselves: their flows can be read, and their jobs end by what they are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.system.chaos.runs import parts
from tests.system.chaos.runs.flows import GROWN
from tests.system.chaos.runs.parts import PARTS, Remake, Streaming

from forestay.formats.flows.python_flow import read_python_flows
from forestay.formats.flows.yaml_flow import read_flow_text


@pytest.mark.parametrize(
    "text", [parts.STREAM, parts.QUESTION, parts.EVENTS, parts.SCHEDULED, parts.REUSED, parts.LIBRARY, parts.LOST]
)
def test_its_flow_is_a_flow(text: str) -> None:
    read = read_flow_text(text)
    assert not read.problems
    assert read.flow is not None


def test_the_python_flow_is_a_flow() -> None:
    read = read_python_flows(GROWN, "grown.py")
    assert not read.problems
    assert [flow.name for flow in read.flows] == ["grown"]


def claim(name: str, job: str = "1", **more: Any) -> dict[str, Any]:
    named = {"tenant": "t", "generation": 1, "attempt": 1, "claim": "c" * 8, "index": None, "inputs": []}
    return named | {"name": name, "job": job, "specification": {"outputs": ["out.txt"]}} | more


def test_a_line_fails_at_every_attempt_until_the_run_is_resumed() -> None:
    streaming = Streaming()
    facts = streaming.facts()
    assert {facts(claim("a", index=13, attempt=attempt))["outcome"] for attempt in (1, 2)} == {"failure"}
    assert facts(claim("a", index=12))["outcome"] == facts(claim("b", index=13))["outcome"] == "ok"
    streaming.resumed = True
    assert facts(claim("a", index=13))["outcome"] == "ok"
    assert streaming.facts()(claim("a", index=13))["outcome"] == "failure", "each trial begins anew"


def test_a_lost_output_is_found_only_at_a_remake() -> None:
    facts = Remake().facts()
    assert facts(claim("a", "first"))["manifest"]["files"] == 1
    needed = {"name": "x", "file": "job:first/out.txt"}
    for attempt in (1, 2):
        assert facts(claim("b", attempt=attempt, inputs=[needed]))["reason"] == "data-missing"
    facts(claim("a", "again"))
    assert facts(claim("b", inputs=[needed | {"file": "job:again/out.txt"}]))["outcome"] == "ok"


def test_every_part_of_a_run_has_its_name() -> None:
    assert list(PARTS) == ["streaming", "grown", "question", "events", "schedule", "reuse", "library", "remake"]
