"""A laptop that loses its power in the middle of a run: after `forestay dev` is started again the run goes on to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.laptop import PATIENCE, Laptop, new_laptop

pytestmark = [pytest.mark.live, pytest.mark.pair]

FLOW = """
forestay: 1
name: long-enough
params: {book: ""}
tasks:
  first: {command: ["true"]}
  second:
    after: [first]
    scatter: {n: [1, 2, 3, 4, 5, 6, 7, 8]}
    run: sleep 2; echo $FORESTAY_PARAM_N >> "${params.book}"
    max_attempts: 3
  last: {command: ["true"], after: [second]}
"""


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = new_laptop(tmp_path)
    laptop.start()
    yield laptop
    laptop.stop()


def test_a_run_goes_on_after_everything_was_killed(laptop: Laptop, tmp_path: Path) -> None:
    book = tmp_path / "book"
    (tmp_path / "flow.yaml").write_text(FLOW)
    run = laptop.run("run", "flow.yaml", f"--param=book={book}", "--detach").strip()
    deadline = time.monotonic() + PATIENCE
    while not book.exists():
        assert time.monotonic() < deadline, laptop.run("runs", "history", run)
        time.sleep(0.1)
    laptop.kill()
    assert len(book.read_text().split()) < 8, "nothing was left to do"
    laptop.start()
    while (json := laptop.json("runs"))["runs"][0]["state"] == "running":
        assert time.monotonic() < deadline, (json, laptop.run("runs", "history", run))
        time.sleep(0.5)
    assert json["runs"][0]["state"] == "completed"
    assert set(book.read_text().split()) == set("12345678")
    counts = laptop.json("jobs", "--run", run, "--by", "state")["counts"]
    assert counts == {"completed": 10}
