"""`forestay runs resume`, `cancel`: a suspended run is continued, an ended one goes on; one by one, or all that a filter finds."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Request, run_json

RUN = run_json(1)["id"]
AGAIN = [
    {"task": "align", "elements": 1, "of": 400, "external": False},
    {"task": "report", "elements": None, "of": None, "external": False},
]


class Runs:
    """A server with one run."""

    def __init__(self) -> None:
        self.ended = True
        self.again = AGAIN
        self.asked: list[Request] = []

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET" and request.path.endswith(RUN):
            ended = "2026-05-01T12:00:00Z" if self.ended else None
            return 200, run_json(1) | {"ended": ended, "holders": ["ada"], "tasks": []}
        if request.method == "GET":
            return 200, {"you": {"subject": "ada"}, "runs": [run_json(1)], "cursor": None}
        self.asked.append(request)
        if request.path.endswith("/verbs"):
            return 200, {"id": request.body["id"], "accepted": True, "detail": ""}
        return 200, {"id": RUN, "resumed": not request.body["dry_run"], "kept": ["fetch"], "again": self.again}


@pytest.fixture
def runs(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Runs:
    server = Runs()
    monkeypatch.setattr(api, "answer", server.answer)
    return server


def test_an_ended_run_goes_on_and_says_what_runs_again(forestay: Shell, runs: Runs) -> None:
    done = forestay("runs", "resume", RUN, "--from", "align", "--param", "n=4", "--reason", "the disk is back")
    assert (done.code, done.out) == (0, f"{RUN}\n")
    assert "again  align, 1 of 400 elements" in done.err
    assert "again  report\n" in done.err
    assert "kept   fetch" in done.err
    assert [request.body["dry_run"] for request in runs.asked] == [True, False]
    assert (runs.asked[1].body["task"], runs.asked[1].body["params"]) == ("align", {"n": 4})
    assert runs.asked[1].body["reason"] == "the disk is back"


def test_a_dry_run_starts_nothing(forestay: Shell, runs: Runs) -> None:
    done = forestay("runs", "resume", RUN, "--dry-run")
    assert (done.code, done.out) == (0, "")
    assert "again  align, 1 of 400 elements" in done.err
    assert [request.body["dry_run"] for request in runs.asked] == [True]


def test_external_effects_are_warned_of(forestay: Shell, runs: Runs) -> None:
    runs.again = [{"task": "mail", "elements": 1, "of": 1, "external": True}]
    done = forestay("runs", "resume", RUN)
    assert "External effects may happen a second time: mail." in done.err
    assert done.code == 0, "a script is taken at its word"


def test_a_suspended_run_is_continued(forestay: Shell, runs: Runs) -> None:
    runs.ended = False
    assert forestay("runs", "resume", RUN).code == 0
    assert [(request.path, request.body["verb"]) for request in runs.asked] == [(f"/v1/runs/{RUN}/verbs", "continue")]


def test_all_runs_that_a_filter_finds_are_resumed(
    forestay: Shell, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Request] = []
    many = [run_json(number) | {"state": state} for number, state in ((1, "failed"), (2, "running"), (3, "failed"))]

    def answer(request: Request) -> tuple[int, Any]:
        asked.append(request)
        if request.path == "/v1/runs":
            return 200, {"runs": many, "cursor": None}
        if request.method == "GET":
            return 200, run_json(1) | {"ended": "2026-05-01T12:00:00Z"}
        if many[0]["id"] in request.path:
            return 409, {"title": "Conflict", "detail": "the run has not ended", "status": 409}
        return 200, {"id": RUN, "resumed": True, "kept": [], "again": AGAIN}

    monkeypatch.setattr(api, "answer", answer)
    done = forestay("runs", "resume", "--flow", "nightly", "--state", "failed")
    assert done.code == 1, "one was refused"
    (refused,) = [line for line in done.err.splitlines() if line.startswith(f"{many[0]['id']}: ")]
    assert "the run has not ended" in refused
    assert done.out == f"{many[2]['id']}\n", "and the next was tried"
    assert (asked[0].query["name"], asked[0].query["state"]) == (["nightly"], ["failed"])


@pytest.mark.parametrize("words", [(), (RUN, "--flow", "nightly")])
def test_a_run_or_a_filter_is_needed_and_not_both(forestay: Shell, runs: Runs, words: tuple[str, ...]) -> None:
    ended = forestay("runs", "cancel", *words)
    assert ended.code == 2
    assert "choose several by --flow" in ended.err
    assert runs.asked == []
