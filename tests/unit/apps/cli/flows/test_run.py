"""`run`, `watch` and `runs`: a run is shown until it has ended, and left alone whatever becomes of the one who watches."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Trouble, ending_json, incident_json, job_json, run_json, task_json

from forestay.apps.cli.flows import run_view
from forestay.apps.cli.flows.run_tree import Line, container, fitted

FLOW = "forestay: 1\nname: nightly\ntasks:\n  first:\n    run: 'true'\n"
BEGAN, ENDED = "2026-05-01T10:00:01.000Z", "2026-05-01T10:00:08.500Z"


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_view, "FIRST_PAUSE", 0.01)


@pytest.fixture
def flow(tmp_path: Path) -> str:
    file = tmp_path / "nightly.yaml"
    file.write_text(FLOW)
    return str(file)


def completed(**changes: Any) -> dict[str, Any]:
    done = task_json("first", "completed", count=1, well=1, began=BEGAN, finished=ENDED)
    return run_json(1, done, state="completed", phase="finished", ended=ENDED, **changes)


def test_run_says_what_changes_and_gives_the_outputs(forestay: Shell, api: FakeApi, flow: str) -> None:
    running = run_json(1, task_json("first", "running", count=1, began=BEGAN))
    run = api.runs.put(run_json(1, task_json("first")), running, completed(outputs={"rows": 7, "to": "a"}))
    ended = forestay("run", flow, "-p", "day=2026-05-01", "-p", "n=3", "-p", 'tables=["a"]', "--key", "k")
    assert (ended.code, ended.out) == (0, f"{run} completed\nrows: 7\nto: a\n")
    names = [line.partition(" ")[2] for line in ended.err.splitlines()]
    assert names[0] == f"run {run} of nightly"
    assert names[1].startswith("first: running")
    assert names[2:] == ["first: completed · 7.5 s", "run completed after 8.5 s"]
    (started,) = api.runs.started
    assert started.body == {"flow": "f" * 64, "params": {"day": "2026-05-01", "n": 3, "tables": ["a"]}}
    assert started.headers["idempotency-key"] == "k"
    assert api.runs.flows["f" * 64] == FLOW


def test_run_says_in_which_domains_sub_flows_run(forestay: Shell, api: FakeApi, flow: str) -> None:
    first = task_json("first", "running", count=4, began=BEGAN, domains={"west": 3, "": 1})
    second = task_json("second", "running", count=1, began=BEGAN, domains={"west": 1})
    api.runs.put(run_json(1, task_json("first")), run_json(1, first, second), completed())
    err = forestay("run", flow).err
    assert "in this domain (1), west (3)" in err
    assert " · in west\n" in err


def test_run_in_json_is_quiet_about_the_rest(forestay: Shell, api: FakeApi, flow: str) -> None:
    run = api.runs.put(completed())
    assert forestay("run", flow, "--json").json["run"]["id"] == run
    detached = forestay("run", "--detach", flow)
    assert (detached.code, detached.out, detached.err) == (0, f"{run}\n", "")
    assert forestay("run", "-d", "--json", flow).json["flow"] == "f" * 64


def test_a_dry_run_starts_and_stores_nothing(forestay: Shell, api: FakeApi, flow: str) -> None:
    api.runs.dry_run = {
        "name": "nightly", "tasks": [], "problems": [], "reuse": False, "grown": False, "jobs": 0, "missing": 0,
        "holders": [], "rules": [], "free_tries": [],
    }  # fmt: skip
    shown = forestay("run", flow, "--dry-run", "-p", "n=3")
    assert (shown.code, shown.out.splitlines()[0]) == (0, "nightly: 0 tasks, 0 jobs. Nothing was started.")
    assert api.requests[-1].body == {"flow": None, "text": FLOW, "params": {"n": 3}}
    assert forestay("run", "until_converged", "--dry-run", "--json").json["dry_run"]["name"] == "nightly"
    assert api.requests[-1].body["flow"] == "until_converged"
    api.runs.dry_run["missing"] = 1
    assert forestay("run", flow, "--dry-run").code == 1
    assert (api.runs.started, api.runs.flows) == ([], {})


def test_parameters_from_a_file_and_their_errors(forestay: Shell, api: FakeApi, flow: str, tmp_path: Path) -> None:
    api.runs.put(completed())
    (tmp_path / "p.yaml").write_text("day: monday\nn: 1\n")
    assert forestay("run", flow, "--params", "p.yaml", "-p", "n=2").code == 0
    assert api.runs.started[0].body["params"] == {"day": "monday", "n": 2}
    (tmp_path / "bad.yaml").write_text("- 1\n")
    for words in (["--params", "bad.yaml"], ["--params", "none.yaml"], ["-p", "nothing"]):
        assert forestay("run", flow, *words).code == 2
    assert len(api.runs.started) == 1


def test_a_flow_that_the_server_has_is_run_by_its_name_or_version(forestay: Shell, api: FakeApi) -> None:
    api.runs.put(completed())
    for name in ("until_converged", "a" * 64):
        assert forestay("run", name).code == 0
        assert api.runs.started[-1].body["flow"] == name
    assert api.runs.flows == {}
    assert forestay("run", "no/such.yaml").code == 2
    assert forestay("run", "nothing.yaml").code == 2


def test_a_flow_with_errors_is_not_sent(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("forestay: 1\nname: x\ntasks:\n  a: {after: [b], run: 'true'}\n")
    ended = forestay("run", "bad.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert "bad.yaml:4:" in ended.err
    error = json.loads(forestay("run", "bad.yaml", "--json").err)["error"]
    assert (error["exit_code"], error["errors"][0]["line"]) == (2, 4)
    assert forestay("graph", "bad.yaml").code == 2
    assert api.requests == []


def test_a_run_that_failed_says_why_and_where_to_look(forestay: Shell, api: FakeApi, flow: str) -> None:
    failed = task_json("first", "failed", count=40, well=38, bad=2, reason="exit code 3", began=BEGAN, finished=ENDED)
    run = api.runs.put(run_json(1, failed, state="failed", ended=ENDED, reason="first failed"))
    api.put(job_json(7, state="failed", run=run, attempt=1, last=ending_json()))
    api.put(job_json(8, state="failed", attempt=1, last=ending_json()))
    api.logs[job_json(7)["id"]] = "reading\nno such \x1b[2Jsample\n"
    ended = forestay("run", flow)
    assert (ended.code, ended.out) == (8, f"{run} failed\n")
    assert "first: failed · 40 of 40 · 2 failed · 7.5 s · exit code 3" in ended.err
    assert "Why: first failed" in ended.err
    assert "forestay explain 00000007" in ended.err
    assert "\n  | reading\n  | no such " in ended.err
    assert "\x1b" not in ended.err
    assert "00000008" not in ended.err
    assert f"forestay runs history {run[:8]}" in ended.err


@pytest.mark.finding("F-D14")
def test_without_temporal_there_is_one_clear_line(forestay: Shell, api: FakeApi, flow: str) -> None:
    api.troubles = [Trouble(status=501)]
    ended = forestay("run", flow)
    assert ended.code == 1
    assert len(api.requests) == 1
    assert len(ended.err.splitlines()) == 1


def test_waiting_has_an_end_that_the_run_does_not(forestay: Shell, api: FakeApi) -> None:
    run = api.runs.put(run_json(1, task_json("first", "running")))
    ended = forestay("watch", run[:8], "--timeout", "0.05")
    assert (ended.code, ended.out) == (7, "")
    assert f"forestay watch {run}" in ended.err


def test_what_waits_for_a_person_is_said_while_the_run_runs(forestay: Shell, api: FakeApi) -> None:
    run = api.runs.put(run_json(1, task_json("first", "running")))
    api.incidents.append(incident_json(1, run=run, job=job_json(3)["id"]))
    api.incidents.append(incident_json(2, run=run, state="complete"))
    ended = forestay("watch", run, "--timeout", "0.3")
    assert ended.err.count("1 failure needs attention: forestay explain 00000003") == 1


def test_ctrl_c_leaves_the_run_and_says_how_to_come_back(forestay: Shell, api: FakeApi) -> None:
    run = api.runs.put(run_json(1, task_json("first", "running")))
    process = forestay.start(["watch", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, data = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert f"The run continues; to follow it again: forestay watch {run}" in data.decode()
    assert {request.method for request in api.requests} == {"GET"}


def test_the_tree_on_a_terminal(forestay: Shell, api: FakeApi) -> None:
    inner = task_json("refine@1/3/fit", "running", count=1, began=BEGAN)
    running = run_json(
        1, task_json("refine", "running", began=BEGAN), inner,
        task_json("many", "running", count=100, well=10, bad=1, began=BEGAN), task_json("last"),
    )  # fmt: skip
    ended = running | {"state": "completed", "ended": ENDED}
    run = api.runs.put(running, ended)
    for _ in range(12):
        api.put(job_json(len(api.jobs), state="completed", run=run, work="many@1"))
    screen = _terminal(forestay, ["watch", run])
    assert f"nightly {run[:8]} running" in screen
    assert "● refine" in screen
    assert re.search(r"└ .*● .*fit \(round 3\)", screen)
    assert "13 of 100" in screen  # the store knows of more ends than the run was told
    assert "· last" in screen
    assert screen.endswith(f"{run} completed\r\n")


def _terminal(shell: Shell, words: list[str]) -> str:
    leader, follower = pty.openpty()
    shell.environment |= {"TERM": "xterm", "LANG": "C.UTF-8", "NO_COLOR": "1"}
    process = shell.start(words, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    seen, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.5)[0]:
            try:
                seen += os.read(leader, 65_536)
            except OSError:
                break
    os.close(leader)
    process.wait()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_where_tasks_are(forestay: Shell) -> None:
    assert container("a") == ""
    assert container("a@1/2/b") == "a"
    assert container("a@1/2/b@3/yes/c") == "a@1/2/b"


def test_what_has_ended_well_gives_way_first() -> None:
    lines = [Line("", "✓", "", f"done{n}", done=True) for n in range(10)] + [Line("", "✗", "red", "bad")]
    assert fitted(lines, 20) == lines
    short = fitted(lines, 4)
    assert len(short) == 4
    assert short[-2].text == "bad"
    assert short[-1].text == "and 8 more"


def test_runs_listed(forestay: Shell, api: FakeApi) -> None:
    assert "forestay run" in forestay("runs").err
    api.runs.put(run_json(1, state="completed", ended=ENDED))
    api.runs.put(run_json(2))
    shown = forestay("runs").out.splitlines()
    assert shown[0].split() == ["RUN", "FLOW", "STATE", "OWNER", "STARTED", "TIME"]
    assert shown[1].split()[:4] == ["00000001", "nightly", "completed", "alice"]
    assert shown[1].endswith("0:08")
    assert [run["state"] for run in forestay("runs", "--json", "-t", "running").json["runs"]] == ["running"]
    assert forestay("runs", "-o", "name").out.split() == list(api.runs.states)
    assert api.sent("GET", "/v1/runs")[-1].query["limit"] == ["50"]
    forestay("runs", "list", "--me")
    assert api.sent("GET", "/v1/runs")[-1].query["owner"] == ["alice"]


def test_users_text_in_a_run_cannot_steer_a_terminal(forestay: Shell, api: FakeApi) -> None:
    nasty = "x\x1b]0;owned\x07\r\ny"
    task = task_json(nasty, "failed", reason=nasty)
    run = api.runs.put(run_json(1, task, state="failed", ended=ENDED, name=nasty, reason=nasty, outputs={nasty: nasty}))
    ended = forestay("watch", run)
    assert "owned" in ended.out + ended.err
    assert not set("\x07\x1b\r") & set(ended.out + ended.err)
    assert json.loads(forestay("watch", run, "--json").out)["run"]["name"] == nasty


def test_a_run_is_shown_as_it_is_now(forestay: Shell, api: FakeApi) -> None:
    failed = task_json("first", "failed", count=40, well=38, bad=2, reason="exit code 3", began=BEGAN, finished=ENDED)
    run = api.runs.put(run_json(1, failed, task_json("last"), state="failed", ended=ENDED, reason="first failed"))
    shown = forestay("runs", "show", run[:8]).out
    assert shown.startswith("nightly 00000001 failed")
    assert "✗ first  failed · 40 of 40 · 2 failed · 7.5 s · exit code 3" in shown
    assert "· last" in shown
    assert forestay("runs", "show", run, "--json").json["run"]["id"] == run


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["cancel", "RUN", "-r", "wrong input"], {"verb": "remove", "reason": "wrong input"}),
        (["suspend", "RUN"], {"verb": "suspend"}),
        (["suspend", "RUN", "--task", "first"], {"verb": "suspend", "task": "first"}),
        (["resume", "RUN"], {"verb": "continue", "holder": "alice"}),
        (["resume", "RUN", "--task", "first"], {"verb": "continue", "task": "first", "holder": "bob"}),
        (["resume", "RUN", "--holder", "eve"], {"verb": "continue", "holder": "eve"}),
        (["retry", "RUN", "first", "--failed-only"], {"verb": "redo", "task": "first", "only_failed": True}),
        (["skip", "RUN", "first"], {"verb": "skip", "task": "first"}),
    ],
)
def test_runs_are_controlled(forestay: Shell, api: FakeApi, words: list[str], sent: dict[str, Any]) -> None:
    run = api.runs.put(run_json(1, task_json("first", "running", holders=["bob"]), holders=["alice", "bob"]))
    ended = forestay("runs", *(run[:8] if word == "RUN" else word for word in words))
    assert (ended.code, ended.out) == (0, f"{run}\n"), ended.err
    (asked,) = api.sent("POST", f"/v1/runs/{run}/verbs")
    assert asked.body == {"task": "", "reason": ""} | sent | {"id": asked.body["id"]} | (
        {"only_failed": asked.body["only_failed"]} if "only_failed" in asked.body else {}
    )


def test_whose_suspension_is_lifted_is_asked_where_it_is_not_clear(forestay: Shell, api: FakeApi) -> None:
    run = api.runs.put(run_json(1, holders=["bob", "eve"]))
    ended = forestay("runs", "resume", run)
    assert (ended.code, ended.out) == (2, "")
    assert "suspended by bob, eve" in ended.err
    assert api.sent("POST", f"/v1/runs/{run}/verbs") == []


@pytest.mark.finding("F-D17")
def test_what_recovered_on_the_way_is_told_with_the_rule_and_its_reason(
    forestay: Shell, api: FakeApi, flow: str
) -> None:
    run = api.runs.put(completed())
    recovered = incident_json(7, run=run, task="first", cause="memory", state="complete")
    by, why = "domain/site#3592c0a2-4b5a", 'if cause == "memory"; more memory helps'
    playbook = {"steps": [{"action": "resubmit"}]}
    recovered["decisions"] = [{"n": 1, "verdict": "playbook", "by": by, "playbook": playbook, "detail": {"words": why}}]
    api.incidents.append(recovered)
    ended = forestay("run", flow)
    assert f"Recovered: first, cause memory; resubmit, by rule 3592c0a2 of domain/site: {why}\n" in ended.err
    assert "Recovered" not in forestay("run", "-q", flow).err
