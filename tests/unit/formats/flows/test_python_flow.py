"""Flows in Python files are found by reading the file; what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.adapters.system.flow_folder import FlowFolder
from forestay.formats.flows.python_flow import MAX_SOURCE, read_python_flows

GOOD = '''
from forestay import flows
from forestay.flows import flow

raise SystemExit("nobody runs this file")

@flow
async def one(needed, *, some=[1, {"a": None}], rate: float = -0.5):
    """First line,
    and its second.

    Not this."""

@flows.flow
async def two(): ...

async def helper(): ...
'''


def test_flows_are_found_and_nothing_is_run() -> None:
    read = read_python_flows(GOOD, "good.py")
    assert read.problems == ()
    flow, two = read.flows
    assert (flow.name, flow.needed, dict(flow.params)) == ("one", ("needed",), {"some": [1, {"a": None}], "rate": -0.5})
    assert flow.description == "First line, and its second."
    assert two.name == "two"
    assert flow.source == two.source == GOOD
    assert flow.version != two.version


def test_the_version_is_that_of_the_content() -> None:
    (before,) = read_python_flows("@flow\nasync def a(): ...\n").flows
    (same,) = read_python_flows("@flow\nasync def a(): ...\n", "other.py").flows
    (after,) = read_python_flows("@flow\nasync def a(): ...\n# more\n").flows
    assert before.version == same.version != after.version


@pytest.mark.parametrize(
    ("source", "line", "words"),
    [
        ("\n@flow\ndef a(): ...", 3, "a flow is an 'async def'"),
        ("@flow\nasync def a(*args): ...", 2, "given by name"),
        ("@flow\nasync def a(\n  x=print): ...", 3, "default of x"),
        ("@flow\nasync def a(x=float('nan')): ...", 2, "default of x"),
        ("async def (:", 1, "this is not Python"),
        ("#" * (MAX_SOURCE + 1), 1, "at most"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(source: str, line: int, words: str) -> None:
    read = read_python_flows(source, "bad.py")
    assert read.flows == ()
    (problem,) = read.problems
    assert problem.line == line
    assert words in problem.message


def test_a_folder_is_read_again_when_it_changes(tmp_path: Path) -> None:
    folder = FlowFolder(tmp_path)
    assert folder.flows() == {}
    (tmp_path / "a.py").write_text("@flow\nasync def a(): ...\n")
    (tmp_path / "b.py").write_text("@flow\nasync def a(): ...\n@flow\nasync def b(): ...\n")
    (tmp_path / "c.py").write_bytes(b"\xff\xfe")
    flows = folder.flows()
    assert sorted(flows) == ["a", "b"]
    assert flows["a"].file == "a.py"
    assert [problem.split(":")[0] for problem in folder.problems] == ["b.py", "c.py"]
    (tmp_path / "a.py").write_text("@flow\nasync def a(): ...\n# changed\n")
    assert folder.flows()["a"].version != flows["a"].version
    (tmp_path / "a.py").unlink()
    assert folder.flows()["a"].file == "b.py"


def test_without_a_folder_there_is_none() -> None:
    assert FlowFolder(None).flows() == {}
