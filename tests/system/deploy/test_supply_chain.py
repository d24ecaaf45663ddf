"""What we are made of is listed by digest, and an audit is clean only if somebody looked at everything."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from scripts.supply_chain import Verdict, judge, pins_without_hashes, sbom, unsafe_node, unsafe_python

ROOT = Path(__file__).parents[3]


def python(*parts: Mapping[str, object]) -> str:
    return json.dumps({"dependencies": list(parts)})


GOOD = {"name": "good", "version": "1", "vulns": []}
BAD = {"name": "bad", "version": "2", "vulns": [{"id": "CVE-1"}]}
LEFT = {"name": "left", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("code", "out", "errors", "verdict"),
    [
        (0, python(GOOD), "", Verdict.CLEAN),
        (1, python(GOOD, BAD), "Found 1 known vulnerability", Verdict.UNSAFE),
        (0, python(GOOD, BAD), "", Verdict.UNSAFE),
        (0, python(GOOD, LEFT), "", Verdict.UNSAFE),
        (0, python(LEFT, LEFT), "", Verdict.NOT_RUN),
        (1, python(GOOD), "something else", Verdict.BROKEN),
        (1, "", "Max retries exceeded: Name resolution", Verdict.NOT_RUN),
        (1, "", "Traceback", Verdict.BROKEN),
        (0, "{}", "", Verdict.BROKEN),
    ],
)
def test_an_audit_of_python_packages_fails_closed(code: int, out: str, errors: str, verdict: Verdict) -> None:
    assert judge("x", code, out, errors, unsafe_python).verdict is verdict


def test_an_audit_of_the_pages_fails_closed() -> None:
    high = json.dumps({"vulnerabilities": {"left-pad": {"severity": "high"}}})
    assert judge("x", 1, high, "", unsafe_node).verdict is Verdict.UNSAFE
    assert judge("x", 0, json.dumps({"vulnerabilities": {}}), "", unsafe_node).verdict is Verdict.CLEAN
    assert judge("x", 1, '{"message": "405 Method Not Allowed"}', "", unsafe_node).verdict is Verdict.NOT_RUN
    assert judge("x", 1, '{"error": {}}', "npm error", unsafe_node).verdict is Verdict.BROKEN


def test_every_part_is_listed_with_its_digest(tmp_path: Path) -> None:
    python_parts, node_parts, locked = sbom(tmp_path)
    listed = {component["name"]: component for component in json.loads(python_parts.read_text())["components"]}
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for wanted in (entry.split(">=")[0].split("[")[0] for entry in named):
        assert wanted in listed
        assert any(place["hashes"] for place in listed[wanted]["externalReferences"])
    pages = json.loads(node_parts.read_text())["components"]
    assert {"react", "@mantine/core"} <= {page["name"] for page in pages}
    assert all(page["hashes"][0]["content"] for page in pages)
    assert pins_without_hashes(locked.read_text()) == []
    assert pins_without_hashes("one==1 \\\n    --hash=sha256:aa\ntwo==2\n") == ["two==2"]
