"""`history`, `graph` and `link`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, run_json, task_json

FLOW = """
forestay: 1
name: diamond
tasks:
  a: {run: 'true'}
  b: {after: a, run: 'true'}
  c: {after: a, run: 'true', scatter: {n: {range: [0, 5]}}}
  d: {after: [b, c], run: 'true'}
  again:
    after: d
    loop:
      at_most: 3
      until: tasks.step.exit_code == 0
      tasks:
        step: {run: 'true'}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    (tmp_path / "diamond.yaml").write_text(FLOW)
    return "diamond.yaml"


def test_a_flow_drawn_without_a_server(lonely: Shell, flow: str) -> None:
    drawn = lonely("graph", flow).out
    assert [line.rstrip() for line in drawn.splitlines()] == [
        "diamond",
        "a",
        "├▶ b",
        "│  └▶ d           also after c",
        "│     └▶ again    loop",
        "│        ┊  step",
        "└▶ c              one for each n from 0 below 5",
    ]
    assert lonely("graph", flow, "--json").json["tasks"][0]["task"] == "a"


def test_a_picture_of_a_flow(lonely: Shell, flow: str, tmp_path: Path) -> None:
    ended = lonely("graph", flow, "--svg", "out.svg")
    assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "out.svg").read_text().startswith("<svg")
    assert lonely("graph", flow, "--svg", "-").out.startswith("<svg")
    assert lonely("graph", flow, "--svg", "no/where.svg").code == 2
    assert lonely("graph", "none.yaml").code == 2


def test_a_run_drawn_with_the_states_of_its_tasks(forestay: Shell, api: FakeApi) -> None:
    tasks = [
        task_json("a", "completed"),
        task_json("c", "running", count=5, well=2),
        task_json("again@1/2/step", "running"),
    ]
    run = api.runs.put(run_json(1, *tasks, name="diamond"))
    api.runs.flows["f" * 64] = FLOW
    drawn = forestay("graph", run[:8]).out
    assert "✓ a" in drawn
    assert "2 of 5" in drawn
    assert "● step" in drawn
    assert "completed" in forestay("graph", run, "--svg", "-").out


def test_a_history_is_told_by_the_day(forestay: Shell, api: FakeApi) -> None:
    done = task_json("a", "failed", reason="exit code 1", began="2026-05-01T10:00:01Z", finished="2026-05-01T10:00:03Z")
    run = api.runs.put(run_json(1, done, state="failed", ended="2026-05-01T10:00:04Z"))
    api.runs.history = [
        {"at": "2026-05-01T10:00:00Z", "kind": "started", "task": "", "words": "alice started the run"},
        {"at": "2026-05-01T10:00:01Z", "kind": "submit_jobs", "task": "a", "words": "a: 1 job submitted"},
        {"at": "2026-05-02T10:00:01Z", "kind": "ended", "task": "", "words": "The run ended: failed\x1b[2J"},
    ]
    text = forestay("runs", "history", run[:8]).out
    assert "nightly of alice: failed" in text
    assert text.count("2026-05-0") == 2
    assert "a: 1 job submitted" in text
    assert "a: failed in 2.0 s: exit code 1" in text
    assert "\x1b" not in text
    assert "submitted" in forestay("runs", "history", run, "--task", "a").out
    assert "started" not in forestay("runs", "history", run, "--task", "a").out
    whole = forestay("runs", "history", run, "--json", "--limit", "2").json
    assert (len(whole["history"]), whole["more"]) == (2, True)


def test_a_link_for_a_browser(forestay: Shell, api: FakeApi) -> None:
    assert forestay("link").out == f"{api.url}/login?once=abc\n"
    assert forestay("link", "--json").json["expires"]


@pytest.mark.finding("F-D1")
def test_what_is_held_is_shown_with_who_can_release_it(forestay: Shell, api: FakeApi) -> None:
    wait = {
        "task": "align", "holder": "bob", "incident": "", "words": "suspended by bob", "who": "bob or an operator", "command": "forestay runs resume 00000001 --task align",
    }  # fmt: skip
    run = api.runs.put(run_json(1, task_json("align", "running", holders=["bob"]), state="held", waits=[wait]))
    shown = forestay("runs", "show", run[:8]).out
    assert "align: suspended by bob\n    bob or an operator can release it: forestay runs resume 00000001" in shown
    listed = forestay("runs", "list", "--held")
    assert run[:8] in listed.out
    assert "forestay runs show RUN" in listed.err
    assert api.sent("GET", "/v1/runs")[-1].query["state"] == ["suspended,held,asking"]
