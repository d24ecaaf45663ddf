"""The points themselves: who dies, when, and only once; and what the comparison of end states finds."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.system.chaos.runs.campaign import Kill, every
from tests.system.chaos.runs.end_state import EndState
from tests.system.chaos.runs.fault_points import Order, give, passes, struck

PASSING = """
import sys
from pathlib import Path
from tests.system.chaos.runs.fault_points import FaultPoints
points = FaultPoints(Path(sys.argv[1]), "orchestrator")
for _ in range(3):
    points.passed("store.write", "before")
"""


def _pass(folder: Path) -> int:
    return subprocess.run([sys.executable, "-c", PASSING, str(folder)], check=False).returncode


def test_a_process_dies_at_its_pass_and_only_once(tmp_path: Path) -> None:
    assert _pass(tmp_path) == 0, "without an order nobody dies"
    order = Order("one", "orchestrator.store.write:before", nth=2)
    give(tmp_path, order)
    assert not struck(tmp_path, order)
    assert _pass(tmp_path) == -9
    assert struck(tmp_path, order)
    assert passes(tmp_path) == {"orchestrator.store.write:before": 3 + 2}
    assert _pass(tmp_path) == 0, "the one that is started again lives"
    give(tmp_path, Order("two", "orchestrator.store.write:after"))
    assert _pass(tmp_path) == 0, "nobody came there"
    give(tmp_path, Order("three", "orchestrator.store.write:before"))
    assert _pass(tmp_path) == -9


def test_a_process_that_passes_may_kill_another(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        order = Order("other", "orchestrator.store.write:before", victim=other.pid)
        give(tmp_path, order)
        assert _pass(tmp_path) == 0
        assert struck(tmp_path, order)
        assert other.wait() == -9


def test_every_point_is_visited_and_the_seed_chooses_the_pass() -> None:
    counts = Counter({"orchestrator.a:before": 9, "reconciler.b:after": 1})
    kills = list(every(counts, seed=1, rounds=2))
    assert {kill.point for kill in kills} == set(counts)
    assert [kill.who for kill in kills] == ["orchestrator", "orchestrator", "temporal", "reconciler", "temporal"]
    assert all(1 <= kill.nth <= counts[kill.point] for kill in kills)
    assert kills == list(every(counts, seed=1, rounds=2))
    assert kills != list(every(counts, seed=2, rounds=2))
    assert list(every(counts, seed=1, rounds=1, wanted=["b:"])) == [
        Kill("reconciler.b:after", 1),
        Kill("reconciler.b:after", 1, temporal=True),
    ]


@pytest.mark.parametrize(
    "other",
    [
        EndState(runs={"well": {"state": "failed"}}),
        EndState(tasks={"well": {"a": {"state": "faulted"}}}),
        EndState(jobs={"well": Counter({("a", None, "completed"): 2})}),
        EndState(effects=Counter({("a", None): 1})),
        EndState(undone=["a", "b"]),
    ],
)
def test_a_different_end_is_told(other: EndState) -> None:
    assert EndState().differences(EndState()) == []
    (text,) = other.differences(EndState())
    assert "instead of" in text
