"""`forestay runs raise` and `forestay inbox launch`: what is sent, and what is shown of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Request, incident_json, run_json

RUN = run_json(1)["id"]
INCIDENT = incident_json(5)["id"]
OFFERED = [{"name": "rain", "words": "It rains.", "rule": "flow/x#1", "acts": True}]
PLAYBOOK = (
    "forestay: 1\nname: refund\nsteps:\n- suspend run\n- action: compensate\n  worklets: [mail.yaml]\n- continue run\n"
)
FLOW = "forestay: 1\nname: mail\ntasks: {mail: {command: [mail]}}\n"


@pytest.fixture
def asked(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        seen.append(request)
        if request.path == "/v1/flows":
            return 201, {"version": "a" * 64, "name": "mail"}
        if request.path.endswith("/playbook"):
            return 200, {"incident": INCIDENT, "outcome": "begun", "detail": "suspend run"}
        if request.path.startswith("/v1/incidents"):
            return 200, incident_json(5)
        if request.method == "GET":
            return 200, {"triggers": OFFERED}
        new = bool(request.body["new"])
        return 200, {"incident": INCIDENT, "verdict": "hold" if new else "playbook", "id": request.body["id"]}

    monkeypatch.setattr(api, "answer", answer)
    return seen


def test_triggers_are_listed_and_raised(forestay: Shell, asked: list[Request]) -> None:
    listed = forestay("runs", "raise", RUN)
    assert listed.code == 0
    assert "rain" in listed.out
    assert "It rains." in listed.out
    ended = forestay("runs", "raise", RUN, "--trigger", "rain", "--task", "show")
    assert (ended.code, ended.out) == (0, f"{INCIDENT}\n")
    assert (asked[-1].path, asked[-1].body["trigger"], asked[-1].body["task"]) == (
        f"/v1/runs/{RUN}/triggers", "rain", "show"
    )  # fmt: skip
    assert forestay("runs", "raise", RUN, "--trigger", "rain", "--new", "snow").code == 2


def test_something_new_says_what_to_do_next(forestay: Shell, asked: list[Request]) -> None:
    ended = forestay("runs", "raise", RUN, "--new", "the roof leaks", "--reason", "move")
    assert ended.code == 0
    assert "The run is suspended" in ended.err
    assert f"forestay inbox launch {INCIDENT[:8]}" in ended.err
    assert asked[-1].body["reason"] == "move"
    assert forestay("runs", "raise", RUN, "--new", "x", "--json").json["verdict"] == "hold"


def test_a_playbook_is_launched_with_its_worklets(forestay: Shell, asked: list[Request], tmp_path: Path) -> None:
    (tmp_path / "mail.yaml").write_text(FLOW)
    (tmp_path / "refund.yaml").write_text(PLAYBOOK)
    ended = forestay("inbox", "launch", INCIDENT, "refund.yaml")
    assert (ended.code, ended.out) == (0, f"{INCIDENT}\n")
    assert asked[-1].path == f"/v1/incidents/{INCIDENT}/playbook"
    assert "a" * 64 in asked[-1].body["text"]
    (tmp_path / "bad.yaml").write_text(PLAYBOOK.replace("- suspend run\n", ""))
    assert forestay("inbox", "launch", INCIDENT, "bad.yaml").code == 2
    assert forestay("inbox", "launch", INCIDENT, "kept-one").code == 0
    assert asked[-1].body == {"playbook": "kept-one", "text": ""}
    assert forestay("inbox", "launch").code == 2
