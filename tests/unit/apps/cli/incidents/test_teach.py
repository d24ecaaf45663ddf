"""`forestay inbox teach` and its like: what a pattern would do in words, and the scoreboard of those that were taught."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, incident_json

NAME = "1-0a1b2c3d4e5f"
PATTERN = {
    "name": f"taught-{NAME}", "pattern": r"(?i)quux daemon failed on \S+", "cause": "node", "retry": "elsewhere", "weight": 60, "fingerprint": NAME,
    "title": "quux daemon failed on <host>", "examples": ["quux daemon failed on node17 \x1b[31m"], "by": "olga", "at": "2026-05-01T10:00:00.000Z", "why": "so",
}  # fmt: skip
OTHER = {"fingerprint": "1-ffff", "title": "quux of another kind", "cause": "disk", "failures": 1234}


def _trial(**changes: Any) -> dict[str, Any]:
    return {
        "pattern": PATTERN, "written": False, "version": 0, "members": 20, "problems": [], "unknown": [], "wrong": [], "examples": [], "errors": 412,
        "failures": 20000, "whole": False, "replaces": [], "judged": 0, "judged_whole": True, "now": "",
    } | changes  # fmt: skip


@pytest.fixture(autouse=True)
def an_error(api: FakeApi) -> None:
    api.errors[NAME] = {"fingerprint": NAME}


def test_a_dry_run_shows_the_draft_and_what_it_was_tried_on(forestay: Shell, api: FakeApi) -> None:
    api.taught = _trial(unknown=[OTHER | {"cause": "unknown"}])
    ended = forestay("inbox", "teach", NAME, "--cause", "node", "--retry", "elsewhere", "--dry-run")
    assert ended.code == 0, ended.err
    for words in (
        f"taught-{NAME} (draft): node, retry elsewhere",
        r"(?i)quux daemon failed on \S+",
        "Tried on 20 failures of this error, and on 412 errors (newest 20,000 failures).",
        "It also names: quux of another kind (unknown, 1,234 failures, 1-ffff)",
    ):
        assert words in ended.out, words
    assert "\x1b" not in ended.out
    assert "leave out --dry-run" in ended.err
    wanted = {"cause": "node", "retry": "elsewhere", "pattern": "", "dry_run": True, "anyway": False, "reason": ""}
    assert api.requests[-1].body == wanted


def test_what_is_taught_says_what_was_judged_again(forestay: Shell, api: FakeApi) -> None:
    api.taught = _trial(written=True, version=3, judged=1234, judged_whole=False, now="1-bbbb", replaces=["taught-1-c"])
    api.incidents.append(incident := incident_json(5))
    ended = forestay("inbox", "teach", incident["id"][:8], "--cause", "node", "--pattern", "quux", "--anyway")
    assert ended.code == 0, ended.err
    assert "Judged again: 1,234 that waited; a reconciler goes on with the rest." in ended.out
    assert "The error is 1-bbbb from now on." in ended.out
    assert "It replaces taught-1-c." in ended.out
    assert (api.requests[-1].body["pattern"], api.requests[-1].body["anyway"]) == ("quux", True)


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (_trial(wrong=[OTHER]), "It would change: quux of another kind (disk, 1,234 failures, 1-ffff)"),
        (_trial(examples=["oom-killer"]), "It would change the cause of examples of oom-killer."),
        (_trial(pattern=None, problems=["its failures share no line"]), "It cannot be taught: its failures share no line."),
    ],
)  # fmt: skip
def test_what_cannot_be_taught_says_why_and_fails(
    forestay: Shell, api: FakeApi, trial: dict[str, Any], words: str
) -> None:
    api.taught = trial
    ended = forestay("inbox", "teach", NAME, "--cause", "node")
    assert ended.code == 1
    assert words in ended.out


def test_the_scoreboard_flags_what_loses_and_fits_a_terminal(forestay: Shell, api: FakeApi) -> None:
    record = {"seen": 1234, "retried": 10, "helped": 2, "whole": True, "words": ""}
    api.taught = {"version": 3, "patterns": [PATTERN | {"record": record, "loses": True}]}
    shown = forestay("inbox", "taught")
    assert shown.code == 0, shown.err
    assert "2/10 !" in shown.out
    assert "forestay inbox forget NAME" in shown.err
    assert max(map(len, shown.out.splitlines())) <= 100
    ended = forestay("inbox", "forget", f"taught-{NAME}")
    assert (ended.code, ended.out) == (0, f"taught-{NAME}: removed\n")
    api.taught = {"version": 4, "patterns": []}
    assert "Nothing was taught" in forestay("inbox", "taught").err


def test_one_failure_is_given_another_cause(forestay: Shell, api: FakeApi) -> None:
    api.incidents.append(incident := incident_json(5))
    ended = forestay("inbox", "correct", incident["id"][:8], "--cause", "disk", "--reason", "I was there")
    assert (ended.code, ended.out) == (0, f"{incident['id']}: disk, held. as it was\n")
    assert api.requests[-1].body == {"cause": "disk", "retry": None, "reason": "I was there"}
