"""Every flow in `examples/` runs to its end by `holdfast run`, against `holdfast dev`, as a reader would do it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.servers import address

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOLDFAST = [sys.executable, "-c", "from holdfast.apps.entry import main; main()"]
PATIENCE = 240.0


@dataclass
class Laptop:
    """`holdfast dev` with a folder of its own."""

    home: Path
    port: int
    dev: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "XDG_"))}
        places = {f"XDG_{name.upper()}_HOME": str(self.home / name) for name in ("config", "state", "cache")}
        return own | places | {"HOLDFAST_TEMPORAL_PROGRAM": address("HOLDFAST_TEST_TEMPORAL_PROGRAM")}

    def start(self) -> None:
        words = [*HOLDFAST, "dev", "--port", str(self.port), "--slots", "4"]
        said = self.home / "dev.log"
        with said.open("wb") as log:
            self.dev = subprocess.Popen(words, env=self.environment, cwd=self.home, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while b"Ctrl-C stops it" not in said.read_bytes():
            assert self.dev.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        assert self.dev is not None
        self.dev.send_signal(signal.SIGINT)
        self.dev.wait(PATIENCE)

    def run(self, *words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [*HOLDFAST, *words], env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert ended.returncode == code, (words, ended.returncode, ended.stdout[-2000:], ended.stderr[-2000:])
        return ended.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    one = Laptop(tmp_path_factory.mktemp("laptop"), port)
    one.start()
    yield one
    one.stop()


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

    given: Callable[[Path], dict[str, Any]] = lambda _: {}
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
    assert KNOWN.keys() == {one.name for one in EXAMPLES.glob("*.yaml")}


@pytest.mark.parametrize("name", KNOWN)
def test_an_example_runs_to_its_end(laptop: Laptop, name: str, tmp_path: Path) -> None:
    example = KNOWN[name]
    given = [f"--param={key}={json.dumps(value)}" for key, value in example.given(tmp_path).items()]
    case = laptop.json("run", str(EXAMPLES / name), *given, "--timeout", "200")["case"]
    assert case["state"] == "completed"
    assert example.outputs(case["outputs"]), case["outputs"]
    counts = laptop.json("jobs", "--case", case["id"], "--by", "state")["counts"]
    assert (sum(counts.values()), counts.get("failed", 0)) == (example.jobs, 0)  # what nobody waits for may still run
    assert "The case ended: completed" in laptop.run("history", case["id"])
    assert (EXAMPLES / name).stem in laptop.run("graph", case["id"])
    assert all(item["began"] and item["finished"] for item in case["items"] if item["state"] == "completed")
