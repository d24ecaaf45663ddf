"""`forestay playbooks`: what is sent for each action, what is shown of the answer, and worklets that are named by their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Request

GOOD = "forestay: 1\nname: change-venue\nsteps:\n- suspend task\n- action: compensate\n  worklets: [book.yaml]\n- continue task\n"
FLOW = "forestay: 1\nname: book\ntasks: {book: {command: [book]}}\n"
KEPT: dict[str, Any] = {
    "name": "change-venue", "version": "f" * 64, "description": "", "steps": ["suspend task", "compensate", "continue task"],
    "by": "ann", "at": "2026-05-01T10:00:00Z", "text": "name: change-venue\n", "playbook": {},
    "versions": [{"version": name * 64, "by": "ann", "at": "2026-05-01T10:00:00Z"} for name in ("f", "e")],
}  # fmt: skip


@pytest.fixture
def asked(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        seen.append(request)
        if request.path == "/v1/flows":
            return 201, {"version": "a" * 64, "name": "book"}
        return 200, {"playbooks": [KEPT]} if request.path == "/v1/playbooks" else KEPT

    monkeypatch.setattr(api, "answer", answer)
    return seen


def test_a_playbook_is_added_with_its_worklets(forestay: Shell, asked: list[Request], tmp_path: Path) -> None:
    (tmp_path / "book.yaml").write_text(FLOW)
    (tmp_path / "change.yaml").write_text(GOOD)
    ended = forestay("playbooks", "add", "change.yaml", "--type", "task-pre")
    assert (ended.code, ended.out) == (0, f"change-venue  {'f' * 12}\n")
    assert [(request.method, request.path) for request in asked] == [
        ("POST", "/v1/flows"),
        ("PUT", "/v1/playbooks/change-venue"),
    ]
    body = asked[1].body
    assert body["type"] == "task-pre"
    assert "a" * 64 in body["text"]
    assert forestay("playbooks", "add", "change.yaml", "--json").json["playbooks"][0]["name"] == "change-venue"


def test_what_is_wrong_is_told_with_its_line_and_nothing_is_sent(
    forestay: Shell, asked: list[Request], tmp_path: Path
) -> None:
    (tmp_path / "book.yaml").write_text(FLOW)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(GOOD.replace("- suspend task\n", ""))
    checked = forestay("playbooks", "check", "good.yaml", "bad.yaml")
    assert checked.code == 1
    assert "good.yaml: good: change-venue, 3 actions" in checked.out
    assert "bad.yaml:6:" in checked.out
    refused = forestay("playbooks", "add", "good.yaml", "bad.yaml")
    assert (refused.code, refused.out) == (2, "")
    assert "bad.yaml" in refused.err
    (tmp_path / "book.yaml").write_text("name: book\n")
    assert forestay("playbooks", "add", "good.yaml").code == 2
    assert asked == []


def test_playbooks_are_listed_and_shown(forestay: Shell, asked: list[Request]) -> None:
    assert "suspend task, compensate, continue task" in forestay("playbooks").out
    shown = forestay("playbooks", "show", "change-venue", "--version", "f" * 6)
    assert "name: change-venue" in shown.out
    assert f"earlier: {'e' * 64}" in shown.err
    assert asked[-1].path == "/v1/playbooks/change-venue"
    assert forestay("playbooks", "show").code == 2
    assert forestay("playbooks", "burn").code == 2
