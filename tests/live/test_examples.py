"""Every flow in `examples/` runs to its end by `forestay run`, against `forestay dev`, as a reader would do it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.live.laptop import Laptop, new_laptop

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path_factory.mktemp("laptop"))
    laptop.start()
    yield laptop
    laptop.stop()


def texts(folder: Path) -> dict[str, Any]:
    for name, words in (("a", "one two"), ("b", "three"), ("c", "four five six")):
        (folder / f"{name}.conf").write_text(words + "\n")
    return {"folder": str(folder)}


def detector(folder: Path) -> dict[str, Any]:
    for number in range(80):
        (folder / f"{number}.raw").write_text(f"event {number}\n")
    return {"incoming": str(folder)}


@dataclass(frozen=True)
class Example:
    """What a flow is given, and what it must come to."""

    inputs: Callable[[Path], dict[str, Any]] = lambda _: {}
    outputs: Callable[[dict[str, Any]], bool] = lambda _: True
    jobs: int = 1


KNOWN = {
    "scatter-gather.yaml": Example(texts, lambda out: out == {"files": 3, "words": 6}, 4),
    "parameter-sweep.yaml": Example(outputs=lambda out: out == {"best": 0.2}, jobs=101),
    "nightly-etl.yaml": Example(lambda folder: {"store": str(folder)}, jobs=6),
    "tier0.yaml": Example(detector, lambda out: len(out["calibration"]) == 4, 172),
    "until-converged.yaml": Example(outputs=lambda out: out == {"rounds": 7}, jobs=8),
}


def test_no_example_is_left_out() -> None:
    assert KNOWN.keys() == {path.name for path in EXAMPLES.glob("*.yaml")}


@pytest.mark.parametrize("name", KNOWN)
def test_an_example_runs_to_its_end(laptop: Laptop, name: str, tmp_path: Path) -> None:
    example = KNOWN[name]
    lines = [f"--param={key}={json.dumps(value)}" for key, value in example.inputs(tmp_path).items()]
    run = laptop.json("run", str(EXAMPLES / name), *lines, "--timeout", "200")["run"]
    assert run["state"] == "completed"
    assert example.outputs(run["outputs"]), run["outputs"]
    counts = laptop.json("jobs", "--run", run["id"], "--by", "state")["counts"]
    assert (sum(counts.values()), counts.get("failed", 0)) == (example.jobs, 0)  # what nobody waits for may still run
    assert "The run ended: completed" in laptop.run("runs", "history", run["id"])
    assert (EXAMPLES / name).stem in laptop.run("graph", run["id"])
    assert all(task["began"] and task["finished"] for task in run["tasks"] if task["state"] == "completed")
