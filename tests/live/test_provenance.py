"""How a result came about, as an RO-Crate: a run whose first attempt failed, exported, and judged by the validator of the profiles' authors."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.laptop import Laptop, new_laptop

pytestmark = pytest.mark.live

VALIDATOR, CONTEXTS = "roc-validator==0.13.0", "rocrate==0.16.0"
FLOW = """
forestay: 1
name: recovered
params: {who: world, times: 3}
tasks:
  greet:
    run: test "$FORESTAY_ATTEMPT" != 1 && echo hello ${params.who}
    max_attempts: 3
    retry_wait: 0
  after: {command: ["true"], after: [greet]}
  many:
    after: [greet]
    scatter: {n: [1, 2]}
    command: ["true"]
"""
# In the context of RO-Crate 1.1 these have other names than in the newer one that can be had as a package.
OF_1_1 = {
    "ComputationalWorkflow": "https://bioschemas.org/ComputationalWorkflow",
    "FormalParameter": "https://bioschemas.org/FormalParameter",
    "input": "https://bioschemas.org/ComputationalWorkflow#input",
    "output": "https://bioschemas.org/ComputationalWorkflow#output",
}


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path)
    laptop.start()
    yield laptop
    laptop.stop()


def with_own_context(crate: Path) -> None:
    """Nothing is fetched in a test: the context is written into the crate instead of its address."""
    script = (
        "import rocrate, pathlib; print((pathlib.Path(rocrate.__file__).parent / 'data/ro-crate.jsonld').read_text())"
    )
    result = subprocess.run(
        ["uvx", "--quiet", "--python", sys.executable, "--from", CONTEXTS, "python", "-c", script],
        capture_output=True,
        text=True,
        check=True,
    )
    path = crate / "ro-crate-metadata.json"
    document = json.loads(path.read_text())
    assert document["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    document["@context"] = json.loads(result.stdout)["@context"] | OF_1_1
    path.write_text(json.dumps(document))


def judged(crate: Path) -> list[dict[str, Any]]:
    words = ["uvx", "--quiet", "--python", sys.executable, "--from", VALIDATOR, "rocrate-validator", "-y", "validate"]
    words += ["--no-paging", "-v", "-f", "json", "-p", "provenance-run-crate-0.5", "-l", "required"]
    result = subprocess.run(
        [*words, "--skip-availability-check", str(crate)], capture_output=True, text=True, check=False
    )
    assert "{" in result.stdout, result.stdout + result.stderr
    report = json.loads(result.stdout[result.stdout.index("{") :])
    return list(report["issues"])


def test_a_run_is_exported_with_its_attempts_and_incidents(laptop: Laptop, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    laptop.run("run", "flow.yaml")
    (run,) = laptop.json("runs")["runs"]
    laptop.run("runs", "export", run["id"], "--to", "run.zip", "--license", "https://spdx.org/licenses/CC-BY-4.0")
    laptop.run("runs", "export", run["id"], "--to", "run.zip", code=2)
    crate = tmp_path / "crate"
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        archive.extractall(crate)
    assert "name: recovered" in (crate / "flow.yaml").read_text()
    graph = {entry["@id"]: entry for entry in json.loads((crate / "ro-crate-metadata.json").read_text())["@graph"]}
    attempts = [entry for name, entry in graph.items() if name.startswith("#job-")]
    assert len(attempts) == 5
    (failed,) = [attempt for attempt in attempts if attempt["actionStatus"].endswith("FailedActionStatus")]
    assert failed["name"].startswith("greet, attempt 1")
    assert "failed" in failed["error"]
    (incident,) = [entry for entry in graph.values() if entry["@type"] == "AssessAction"]
    assert incident["object"] == {"@id": failed["@id"]}
    assert len(graph["#control-many"]["object"]) == 2
    with_own_context(crate)
    assert judged(crate) == []
