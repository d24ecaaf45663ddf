"""`sizes`: what jobs would have asked for."""

from __future__ import annotations

from typing import Any

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi

GB = 1 << 30


def sizes_json(task: str, **changes: Any) -> dict[str, Any]:
    return {
        "flow": "nightly", "task": task, "jobs": 400, "out_of_memory": 0, "asked_memory": 30 * GB, "asked_wall": 7200,
        "memory": 3 * GB, "wall": 780, "by_input": [{"up_to": GB, "jobs": 400, "memory": 3 * GB, "wall": 780}],
        "backtest": {"jobs": 200, "failed": 1, "wasted": 900.0, "would_waste": 90.0},
    } | changes  # fmt: skip


def test_all_tasks_in_a_table_and_one_in_sentences(forestay: Shell, api: FakeApi) -> None:
    killed = sizes_json("killed", memory=None, wall=None, by_input=[], out_of_memory=9, backtest=None)
    few = sizes_json("few", jobs=3, memory=None, wall=None, by_input=[], backtest=None, asked_memory=0, asked_wall=None)
    api.sizes = {"tasks": [sizes_json("align"), killed, few, sizes_json("lean", asked_memory=2 * GB)], "read": 5000, "whole": False}  # fmt: skip
    shown = forestay("sizes")
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[1] == ["nightly", "align", "400", "30G", "3G", "2", "h", "13", "min", "-90%", "0.5%"]
    assert rows[3] == ["nightly", "few", "3", "-", "-", "-", "-", "-", "-"]
    assert (len(rows), "5,000 jobs that ended last" in shown.err) == (5, True)
    detailed = forestay("sizes", "align", "--flow", "nightly").out
    assert api.requests[-1].query == {"task": ["align"], "flow": ["nightly"]}
    assert max(map(len, detailed.splitlines())) <= 100
    for words in (
        "align: would have asked 3G instead of 30G",
        "align: 1 of the newest 200 jobs would have run out of memory",
        "align: inputs up to 1G (400 jobs): 3G",
        "killed: no figure for memory: 9 of 400 jobs ran out of memory",
        "few: no figure for memory: too few jobs",
        "lean: asks 2G, which is little enough",
    ):
        assert words in detailed, detailed
    assert forestay("sizes", "--json").json == api.sizes


def test_nothing_was_measured(forestay: Shell) -> None:
    shown = forestay("sizes")
    assert (shown.code, shown.out, "No finished job" in shown.err) == (0, "", True)
