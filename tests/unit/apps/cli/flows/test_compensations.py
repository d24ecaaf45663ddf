"""`forestay compensations`: what is sent for each command, and what is shown of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Request

RUN = "4f1c9d2a-0000-4000-8000-000000000001"
GOOD = "action: reserve\nrun: release ${params.slot}\n"
KEPT: dict[str, Any] = {
    "action": "reserve", "version": "f" * 64, "description": "Give it back.", "by": "ann", "at": "2026-05-01T10:00:00Z", "text": GOOD,
    "versions": [{"version": name * 64, "by": "ann", "at": "2026-05-01T10:00:00Z"} for name in ("f", "e")],
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "number": 3, "task": "request", "action": "reserve", "version": "e" * 64, "state": "held", "tries": 3, "reason": "no route", "rebound_by": "",
}  # fmt: skip


@pytest.fixture
def asked(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        seen.append(request)
        if request.path == f"/v1/runs/{RUN}/compensations":
            return 200, {"compensations": [ENTRY, ENTRY | {"number": 2, "action": "", "version": ""}]}
        if request.path.startswith("/v1/runs/"):
            return 200, {"id": "v1", "accepted": True, "detail": "reserve is at version eeeeeeeeeeee"}
        return 200, {"compensations": [KEPT]} if request.path == "/v1/compensations" else KEPT

    monkeypatch.setattr(api, "answer", answer)
    return seen


def test_a_compensation_is_registered_and_looked_at(forestay: Shell, asked: list[Request], tmp_path: Path) -> None:
    (tmp_path / "release.yaml").write_text(GOOD)
    added = forestay("compensations", "add", "release.yaml")
    assert (added.code, added.out) == (0, f"reserve  {'f' * 12}\n")
    assert (asked[0].method, asked[0].path) == ("PUT", "/v1/compensations/reserve")
    assert "release ${params.slot}" in asked[0].body["text"]
    assert "Give it back." in forestay("compensations", "list").out
    shown = forestay("compensations", "show", "reserve", "--version", "ee")
    assert "release ${params.slot}" in shown.out
    assert "e" * 64 in str(asked[-1])


def test_what_is_wrong_is_told_with_its_line_and_nothing_is_sent(
    forestay: Shell, asked: list[Request], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("action: reserve\ncommand: [undo, '${tasks.a.result}']\nretries: 3\n")
    refused = forestay("compensations", "add", "bad.yaml")
    assert refused.code == 2
    assert "bad.yaml:3:" in refused.err
    assert asked == []


def test_the_stack_of_a_run_is_shown_and_rebound(forestay: Shell, asked: list[Request]) -> None:
    listed = forestay("compensations", "list", "--run", RUN)
    assert "(of the flow)" in listed.out
    assert "held" in listed.out
    bound = forestay("compensations", "rebind", RUN, "3", "--version", "ee", "--reason", "it is safer")
    assert (bound.code, bound.out) == (0, f"{RUN}\n")
    sent = asked[-1]
    assert (sent.method, sent.path) == ("POST", f"/v1/runs/{RUN}/compensations/3/rebind")
    assert (sent.body["version"], sent.body["reason"]) == ("e" * 64, "it is safer")
    assert sent.body["id"]
