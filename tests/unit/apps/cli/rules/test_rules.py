"""`forestay rules`: what is sent for each action, and what is shown of the answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, Request, incident_json, job_json

from forestay.formats.rules.conclusion_text import read_conclusion

RULE: dict[str, Any] = {
    "id": "0f1e2d3c-rule", "name": "starter-memory", "condition": 'cause == "memory"', "conclusion": {"playbook": "grow"}, "state": "shadow", "author": "ann",
    "reference_incident": "i1", "description": "too little",
}  # fmt: skip
SET: dict[str, Any] = {
    "tenant": "physics", "level": "domain", "name": "site", "version": 3, "rules": 1,
    "trees": [{"type": "abort", "task": "*", "words": ['if cause == "memory" then grow (shadow)'], "rules": [RULE]}],
}  # fmt: skip
SHOWN = {"type": "abort", "task": "*", **RULE, "effective": 'if cause == "memory" then grow', "does": "grow"}
RULING = {
    "verdict": "true", "active": {"conclusion": {"playbook": "grow"}, "rule": RULE["id"]}, "shadow": None, "problems": ["hots: there is no such field"],
    "words": ["rule decides"],
}  # fmt: skip
EDITED = {
    "version": 4,
    "rule": RULE["id"],
    "overturned": [{"reference_incident": "i0", "rule": "r", "before": "rule r", "after": "rule s"}],
    "replayed": None,
}
REPLAYED: dict[str, Any] = {
    "rule_set": "domain/site", "version": 3, "all": True, "evaluated": 14, "read": ["cause", "job.attempt"], "drafts": [], "incidents": 1200, "same": 1000, "differs": 200, "by_rule": 210,
    "wrong": 0, "wrong_by": {}, "proof": {}, "came": {"recovered": 1200}, "errors": 0, "core_hours_saved": 12.5, "core_hours_spent": 1.0,
    "peak_hour": 17, "put_off": 0, "first": "2026-05-01T10:00:00Z", "last": "2026-05-02T10:00:00Z", "rules": [], "more_groups": 0,
    "groups": [
        {"by": "domain/site#0f1e", "cause": "memory", "then": "fail", "now": "retry-changed", "count": 200, "wrong": 0, "came": {"given-up": 200}, "examples": ["i1"]}
    ],
    "examples": [], "messages": [],
}  # fmt: skip
PROPOSED: dict[str, Any] = {
    "rule_set": "domain/site", "incidents": 40, "all": True,
    "proposals": [{
        "id": "0a1b2c3d4e5f", "fingerprint": "", "words": ["Of failures with cause node, a retry on another host recovered 5 of 5."], "remedy": "elsewhere", "helped": 5, "tried": 5, "by_hand": 2,
        "rule": {
            "type": "abort", "condition": 'cause == "node"', "reference_incident": "i1", "description": "proposed: it helped",
            "conclusion": {"steps": [{"action": "avoid-host"}, {"action": "resubmit"}]},
        },
        "examples": ["i1"], "exceptions": [], "replay": {**REPLAYED, "incidents": 9, "differs": 9},
    }],
}  # fmt: skip


@pytest.fixture
def asked(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What was asked of a server with one rule."""
    seen: list[Request] = []

    def answer(request: Request) -> tuple[int, Any]:
        seen.append(request)
        match (request.method, request.path.removeprefix("/v1/rules").strip("/").split("/")):
            case ("GET", [""]):
                return 200, {"rule_sets": [{"level": "domain", "name": "site", "version": 3, "rules": 1}]}
            case ("GET", ["context"]):
                return 200, {
                    "fields": [
                        {"name": "evidence.exit_code", "type": "int", "optional": True, "words": "the exit code"}
                    ]
                }
            case ("POST", ["test"]):
                return 200, RULING
            case ("GET", ["domain", "site"]):
                return 200, SET
            case ("GET", ["domain", "site", "rules", _]):
                return 200, {"rule": SHOWN}
            case ("GET", ["domain", "site", "versions"]):
                return 200, {
                    "versions": [
                        {
                            "number": 3,
                            "by": "ann",
                            "at": "2026-05-01T10:00:00Z",
                            "note": "added",
                            "changes": 2,
                            "replayed": None,
                        }
                    ]
                }
            case ("GET", ["domain", "site", "diff"]):
                return 200, {
                    "changes": [{"change": "added", "type": "abort", "task": "*", "rule": RULE["id"], "after": RULE}]
                }
            case ("POST", ["domain", "site", "proposals", "0a1b2c3d4e5f", "dismiss"]):
                return 200, {"proposal": "0a1b2c3d4e5f"}
            case ("GET", ["domain", "site", "proposals"]):
                return 200, PROPOSED
            case ("POST", ["domain", "site", "replay"]):
                return 200, REPLAYED
            case ("POST" | "DELETE", ["domain", "site", *_]):
                return 200, EDITED
        return FakeApi.answer(api, request)

    monkeypatch.setattr(api, "answer", answer)
    return seen


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["list"], "domain/site"),
        (["fields"], "int or null"),
        (["show"], "if cause"),
        (["show", "0f1e"], "too little"),
        (["show", RULE["id"]], 'if cause == "memory" then grow'),
        (["show", "domain/site"], "if cause"),
        (["versions", "--set", "domain/site"], "added"),
        (["versions", "domain/site"], "added"),
        (["diff", "1", "3"], "+ added 0f1e2d3c"),
        (["diff", "1", "--set", "domain/site"], "+ added"),
    ],
)
def test_what_is_shown(forestay: Shell, asked: list[Request], words: list[str], shown: str) -> None:
    ended = forestay("rules", *words)
    assert ended.code == 0, ended.err
    assert shown in ended.out
    json.loads(forestay("rules", *words, "--json").out)


def test_no_line_wraps_at_a_hundred_columns(
    forestay: Shell, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = " && ".join(f'labels["part-{number}"] == "x"' for number in range(20))
    monkeypatch.setitem(SET["trees"][0], "words", [f"if {long} then grow (shadow)"])
    monkeypatch.setitem(SHOWN, "effective", f"if {long} then grow")
    for of in (RULE, SHOWN):
        monkeypatch.setitem(of, "description", "because " * 40)
    monkeypatch.setitem(REPLAYED, "read", [f"labels.part{number}" for number in range(30)])
    forestay.environment["COLUMNS"] = "100"
    for words in (["show"], ["show", RULE["id"]], ["replay", "--set", "domain/site"]):
        ended = forestay("rules", *words)
        assert ended.code == 0, ended.err
        assert [line for line in ended.out.splitlines() if len(line) > 100] == []
    del forestay.environment["COLUMNS"]
    assert f"if {long} then grow" in forestay("rules", "show").out, "whoever reads it by a program gets whole lines"


def test_a_rule_is_added_from_a_file_and_options(forestay: Shell, asked: list[Request], tmp_path: Path) -> None:
    file = tmp_path / "rule.yaml"
    file.write_text("type: abort\ntask: align\nconclusion:\n  steps: [{action: hold}]\ncontext: {cause: memory}\n")
    ended = forestay(
        "rules",
        "add",
        "--set",
        "domain/site",
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
    assert "Reference incident i0" in ended.err
    assert asked[-1].body == {
        "type": "abort", "task": "align", "conclusion": {"steps": [{"action": "hold"}]}, "context": {"cause": "memory"},
        "condition": 'cause == "memory"', "reference_incident": "i1", "description": "why", "confirmed": True,
    }  # fmt: skip


def test_a_rule_for_an_incident_needs_a_condition_and_what_to_do(
    forestay: Shell, asked: list[Request], api: FakeApi
) -> None:
    """The incident says the type; it may be named by its job, or as the newest that waits."""
    api.put(job_json(3))
    api.incidents += [incident_json(2, state="complete"), incident_json(1, job=job_json(3)["id"])]
    for name in ("newest", "00000003", job_json(3)["id"], "00000001", incident_json(1)["id"]):
        ended = forestay("rules", "add", "--from", name, "--if", "true", "--then", "{action: resubmit, wait: 5 s}")
        assert ended.code == 0, ended.err
        assert "forestay rules promote 0f1e2d3c" in ended.err
        assert asked[-1].body == {
            "type": "abort", "condition": "true", "reference_incident": incident_json(1)["id"], "confirmed": False,
            "conclusion": {"steps": [{"action": "resubmit", "wait": 5}]},
        }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("grow", {"playbook": "grow"}),
        ("avoid-host, resubmit", {"steps": [{"action": "avoid-host"}, {"action": "resubmit"}]}),
        ("remove run", {"steps": [{"action": "remove", "target": "run"}]}),
        ("[{action: hold, reason: look}]", {"steps": [{"action": "hold", "reason": "look"}]}),
    ],
)
def test_what_a_rule_does_in_one_line(text: str, meaning: dict[str, Any]) -> None:
    conclusion, wrong = read_conclusion(text)
    assert not wrong
    assert _without_targets(conclusion) == _without_targets(meaning)


def _without_targets(conclusion: Mapping[str, Any]) -> dict[str, Any]:
    steps = conclusion.get("steps", [])
    kept = [{key: value for key, value in step.items() if key != "target" or value == "run"} for step in steps]
    return dict(conclusion) | ({"steps": kept} if steps else {})


@pytest.mark.parametrize("text", ["resubmitt, hold", "{action: resubmit, wait: never}", "[", "{}", "7"])
def test_what_a_rule_does_is_checked_before_it_is_sent(forestay: Shell, asked: list[Request], text: str) -> None:
    ended = forestay("rules", "add", "--type", "abort", "--if", "true", "--then", text)
    assert ended.code == 2
    assert "--then:" in ended.err
    assert asked == []


def test_what_the_rules_say_is_asked_of_all_sets_or_of_one(
    forestay: Shell, asked: list[Request], api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "context.json"
    file.write_text('{"cause": "memory"}')
    ended = forestay("rules", "test", "-f", str(file), "--type", "abort", "--flow", "reads")
    assert ended.code == 0
    assert "grow" in ended.out
    assert "hots" in ended.err
    assert asked[-1].body == {"type": "abort", "flow": "reads", "context": {"cause": "memory"}}
    api.incidents.append(incident_json(1))
    forestay("rules", "test", "--set", "domain/site", "--version", "2", "--from", "00000001")
    assert asked[-1].body == {"incident": incident_json(1)["id"], "rule_set": "domain/site", "version": 2}


@pytest.mark.parametrize(
    ("words", "method", "path", "body"),
    [
        (["promote", "0f1e"], "POST", f"rules/{RULE['id']}/state", {"state": "active"}),
        (["demote", "0f1e", "--set", "domain/site"], "POST", f"rules/{RULE['id']}/state", {"state": "shadow"}),
        (["remove", "0f1e", "--yes"], "DELETE", f"rules/{RULE['id']}", None),
        (["rollback", "1", "--set", "domain/site"], "POST", "rollback", {"version": 1}),
    ],
)
def test_rules_are_steered(
    forestay: Shell, asked: list[Request], words: list[str], method: str, path: str, body: object
) -> None:
    ended = forestay("rules", *words)
    assert ended.code == 0, ended.err
    assert "version 4" in ended.err
    assert (asked[-1].method, asked[-1].path) == (method, f"/v1/rules/domain/site/{path}")
    assert (asked[-1].body or None) == body


def test_a_replay_is_told_in_words(
    forestay: Shell, asked: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "draft.yaml"
    file.write_text("type: abort\ncondition: cause == 'memory'\nconclusion: {playbook: grow}\ncornerstone: i1\n")
    ended = forestay("rules", "replay", "--set", "domain/site", "--since", "30d", "--with", str(file))
    assert ended.code == 0, ended.err
    for words in ("1,200 incidents", "changed 200", "saved 12.5", "no wrong decisions", "200 failed, not retried"):
        assert words in ended.out
    body = asked[-1].body
    assert body is not None
    assert body["rules"][0]["conclusion"] == {"playbook": "grow"}
    assert body["since"].endswith("Z")
    document = json.loads(forestay("rules", "replay", "--json").out)
    assert document["incidents"] == 1200
    monkeypatch.setitem(REPLAYED, "wrong", 2)
    monkeypatch.setitem(REPLAYED, "wrong_by", {"stops": 2})
    ended = forestay("rules", "replay", "--acting")
    assert (ended.code, asked[-1].body) == (1, {"acting": True, "show": 10})
    assert "2 would stop a job that succeeded at a further attempt" in ended.out


def test_a_proposal_comes_with_the_line_that_adds_it(
    forestay: Shell, asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = forestay("rules", "propose", "--since", "30d")
    assert ended.code == 0, ended.err
    assert "recovered 5 of 5" in ended.out
    line = next(other_line for other_line in ended.out.splitlines() if other_line.strip().startswith("forestay "))
    words = shlex.split(line)
    assert words[:7] == ["forestay", "rules", "add", "--set", "domain/site", "--from", "i1"]
    conclusion, wrong = read_conclusion(words[words.index("--then") + 1])
    assert not wrong
    assert conclusion == {"steps": [{"action": "avoid-host"}, {"action": "resubmit"}]}
    assert json.loads(forestay("rules", "propose", "--json").out)["incidents"] == 40
    assert "(0a1b2c3d4e5f)" in ended.out
    assert "forestay rules dismiss ID" in ended.err
    dismissed = forestay("rules", "dismiss", "0a1b2c3d4e5f", "--reason", "it leaks")
    assert dismissed.code == 0, dismissed.err
    assert asked[-1].body == {"reason": "it leaks"}
    monkeypatch.setitem(PROPOSED, "proposals", [])
    assert "No proposals" in forestay("rules", "propose").err


def test_to_promote_against_the_replay_wants_a_reason(forestay: Shell, asked: list[Request]) -> None:
    assert forestay("rules", "promote", "0f1e", "--yes").code == 2
    ended = forestay("rules", "promote", "0f1e", "--yes", "--because", "sick nodes")
    assert ended.code == 0, ended.err
    assert asked[-1].body == {"state": "active", "confirmed": True, "reason": "sick nodes"}


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "--since", "sometime"],
        ["cook"],
        ["show", "site"],
        ["add"],
        ["test"],
        ["promote"],
        ["promote", "0f"],
        ["diff"],
        ["rollback", "x"],
    ],
)
def test_what_cannot_be_understood_is_a_mistake_of_usage(
    forestay: Shell, asked: list[Request], words: list[str]
) -> None:
    ended = forestay("rules", *words)
    assert (ended.code, ended.out) == (2, "")


def test_a_rule_of_a_file_is_named_by_its_name_there(forestay: Shell, asked: list[Request]) -> None:
    assert forestay("rules", "demote", "starter-memory").code == 0
    assert asked[-1].path.endswith(f"/rules/{RULE['id']}/state")
    assert forestay("rules", "demote", "starter").code == 3


def test_a_rule_that_does_not_exist(forestay: Shell, asked: list[Request]) -> None:
    ended = forestay("rules", "promote", "ffff")
    assert (ended.code, ended.out) == (3, "")
    assert "no rule with an id that begins with 'ffff'" in ended.err
