"""`holdfast rules`: what is sent for each action, and what is shown of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Shell
from tests.cli.fake_api import FakeApi, Request

RULE: dict[str, Any] = {
    "id": "0f1e2d3c-rule", "condition": 'cause == "memory"', "conclusion": {"exlet": "grow"}, "state": "shadow", "author": "ann",
    "cornerstone": "i1", "description": "too little",
}  # fmt: skip
SET = {
    "tenant": "physics", "level": "domain", "name": "house", "version": 3, "rules": 1,
    "trees": [{"type": "abort", "task": "*", "words": ['if cause == "memory" then grow (shadow)'], "rules": [RULE]}],
}  # fmt: skip
SHOWN = {"type": "abort", "task": "*", **RULE, "effective": 'if cause == "memory" then grow', "does": "grow"}
RULING = {
    "verdict": "true", "active": {"conclusion": {"exlet": "grow"}, "rule": RULE["id"]}, "shadow": None, "problems": ["hots: there is no such field"],
    "words": ["rule decides"],
}  # fmt: skip
EDITED = {
    "version": 4,
    "rule": RULE["id"],
    "overturned": [{"cornerstone": "i0", "rule": "r", "before": "rule r", "after": "rule s"}],
}


@pytest.fixture
def asked(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What was asked of a server with one rule."""
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        seen.append(request)
        match (request.method, request.path.removeprefix("/v1/rules").strip("/").split("/")):
            case ("GET", [""]):
                return 200, {"rule_sets": [{"level": "domain", "name": "house", "version": 3, "rules": 1}]}
            case ("GET", ["context"]):
                return 200, {
                    "fields": [
                        {"name": "evidence.exit_code", "type": "int", "optional": True, "words": "the exit code"}
                    ]
                }
            case ("POST", ["test"]):
                return 200, RULING
            case ("GET", ["domain", "house"]):
                return 200, SET
            case ("GET", ["domain", "house", "rules", _]):
                return 200, {"rule": SHOWN}
            case ("GET", ["domain", "house", "versions"]):
                return 200, {
                    "versions": [
                        {"number": 3, "by": "ann", "at": "2026-05-01T10:00:00Z", "note": "added", "changes": 2}
                    ]
                }
            case ("GET", ["domain", "house", "diff"]):
                return 200, {
                    "changes": [{"change": "added", "type": "abort", "task": "*", "rule": RULE["id"], "after": RULE}]
                }
            case ("POST" | "DELETE", ["domain", "house", *_]):
                return 200, EDITED
        return 404, "there is no such thing"

    monkeypatch.setattr(api, "answer", answer)
    return seen


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["list"], "domain/house"),
        (["fields"], "int or null"),
        (["show"], "if cause"),
        (["show", "domain/house", "0f1e"], "too little"),
        (["explain", "domain/house", "0f1e"], 'if cause == "memory" then grow'),
        (["versions", "domain/house"], "added"),
        (["diff", "domain/house", "1", "3"], "+ added 0f1e2d3c"),
        (["diff", "domain/house", "1"], "+ added"),
    ],
)
def test_what_is_shown(holdfast: Shell, asked: list[Request], words: list[str], shown: str) -> None:
    ended = holdfast("rules", *words)
    assert ended.code == 0, ended.err
    assert shown in ended.out
    json.loads(holdfast("rules", *words, "--json").out)


def test_a_rule_is_added_from_a_file_and_options(holdfast: Shell, asked: list[Request], tmp_path: Path) -> None:
    file = tmp_path / "rule.yaml"
    file.write_text("type: abort\ntask: align\nconclusion:\n  steps: [{action: hold}]\ncontext: {cause: memory}\n")
    ended = holdfast(
        "rules",
        "add",
        "domain/house",
        "-f",
        str(file),
        "--if",
        'cause == "memory"',
        "--from",
        "i1",
        "--because",
        "why",
        "--yes",
    )
    assert (ended.code, ended.out.strip()) == (0, RULE["id"])
    assert "shadow" in ended.err
    assert "cornerstone i0" in ended.err
    assert asked[-1].body == {
        "type": "abort", "task": "align", "conclusion": {"steps": [{"action": "hold"}]}, "context": {"cause": "memory"},
        "condition": 'cause == "memory"', "cornerstone": "i1", "description": "why", "confirmed": True,
    }  # fmt: skip


def test_what_the_rules_say_is_asked_of_all_sets_or_of_one(
    holdfast: Shell, asked: list[Request], tmp_path: Path
) -> None:
    file = tmp_path / "context.json"
    file.write_text('{"cause": "memory"}')
    ended = holdfast("rules", "test", "-f", str(file), "--type", "abort", "--flow", "reads")
    assert ended.code == 0
    assert "grow" in ended.out
    assert "hots" in ended.err
    assert asked[-1].body == {"type": "abort", "flow": "reads", "context": {"cause": "memory"}}
    holdfast("rules", "test", "domain/house", "--version", "2", "--from", "i1")
    assert asked[-1].body == {"incident": "i1", "rule_set": "domain/house", "version": 2}


@pytest.mark.parametrize(
    ("words", "method", "path", "body"),
    [
        (["promote", "domain/house", "0f1e"], "POST", f"rules/{RULE['id']}/state", {"state": "active"}),
        (["demote", "domain/house", "0f1e"], "POST", f"rules/{RULE['id']}/state", {"state": "shadow"}),
        (["remove", "domain/house", "0f1e", "--yes"], "DELETE", f"rules/{RULE['id']}", None),
        (["rollback", "domain/house", "1"], "POST", "rollback", {"version": 1}),
    ],
)
def test_rules_are_steered(
    holdfast: Shell, asked: list[Request], words: list[str], method: str, path: str, body: object
) -> None:
    ended = holdfast("rules", *words)
    assert ended.code == 0, ended.err
    assert "version 4" in ended.err
    assert (asked[-1].method, asked[-1].path) == (method, f"/v1/rules/domain/house/{path}")
    assert (asked[-1].body or None) == body


@pytest.mark.parametrize(
    "words",
    [
        ["cook"],
        ["show", "house"],
        ["add"],
        ["test"],
        ["promote"],
        ["promote", "domain/house", "ffff"],
        ["diff"],
        ["rollback", "domain/house", "x"],
    ],
)
def test_what_cannot_be_understood_is_a_mistake_of_usage(
    holdfast: Shell, asked: list[Request], words: list[str]
) -> None:
    ended = holdfast("rules", *words)
    assert (ended.code, ended.out) == (2, "")
