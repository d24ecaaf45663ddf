"""How the command behaves towards a terminal, a pipe and a script."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import TOKEN, FakeApi, claim_json, job_json
from typer.testing import CliRunner

from forestay.apps import entry
from forestay.apps.cli import PANELS, app
from forestay.apps.cli.lazy_commands import CommandGroup
from forestay.apps.cli.output import wants_colour
from forestay.apps.cli.session import Options, Session
from forestay.client.transport.errors import BadRequest

JOB = job_json(1)["id"]


def _commands() -> dict[str, list[str]]:
    """Every command with its sub-commands; those without any have an empty list."""
    group: Any = typer.main.get_command(app)
    commands: dict[str, list[str]] = {}
    for name in group.commands:
        command = group.commands[name]
        commands[name] = list(command.commands) if isinstance(command, CommandGroup) else []
    return commands


COMMANDS = _commands()
CALLS = [[name, *([sub] if sub else [])] for name, subs in COMMANDS.items() for sub in subs or [""]]
"""Every command that does something."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "terminal", "pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"CLICOLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_when_there_is_colour(environment: dict[str, str], terminal: bool, pipe: bool) -> None:
    assert wants_colour(Terminal(), environment) == terminal
    assert wants_colour(io.StringIO(), environment) == pipe


def test_no_colour_and_no_bar_off_a_terminal(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1, state="running", attempt=1, claim=claim_json()))
    plain = forestay("queue")
    assert "\x1b" not in plain.out + plain.err
    forestay.environment["CLICOLOR_FORCE"] = "1"
    assert "\x1b[32mR" in forestay("queue").out


@pytest.mark.parametrize("words", [[], *([name] for name, subs in COMMANDS.items() if subs)], ids=" ".join)
def test_the_list_of_verbs_fits_a_terminal_and_cuts_no_sentence(forestay: Shell, words: list[str]) -> None:
    forestay.environment["COLUMNS"] = "80"
    shown = forestay(*words, "--help").out.splitlines()
    assert [line for line in shown[1:] if line.endswith("...") or len(line) > 80] == []


def test_the_first_screen_is_one_screen(lonely: Shell) -> None:
    """Of the whole command, with the processes; it names every command."""
    ended = CliRunner().invoke(entry.app, [], env=lonely.whole())
    lines = ended.stdout.splitlines()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert len(lines) <= 40
    assert all(len(line) <= 100 for line in lines)
    assert [line.split()[0] for line in lines[2:-1] if line[:1].isupper()] == [
        "Start", "Jobs", "Flows", "Failures", "Fleet", "Admin",
    ]  # fmt: skip
    group: Any = typer.main.get_command(entry.app)
    assert set(group.commands) <= set(re.findall(r"[a-z-]+", ended.stdout))


def test_help_has_a_panel_for_each_group(forestay: Shell) -> None:
    shown = forestay("--help").out
    places = [shown.index(f"\n{panel}:\n") for panel in PANELS]
    assert places == sorted(places)


def test_a_sub_command_is_suggested_and_the_default_is_marked(forestay: Shell) -> None:
    assert "list     List runs, newest first (default)" in forestay("runs", "--help").out
    wrong = forestay("runs", "lst")
    assert (wrong.code, wrong.out) == (2, "")
    assert "Did you mean 'list'" in wrong.err
    assert forestay("bpel").code == 2


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_every_verb_has_help_with_an_example_and_json(forestay: Shell, words: list[str]) -> None:
    ended = forestay(*words, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"forestay {' '.join(words)} " in ended.out.replace("\n", " ") + " "
    assert "--json" in ended.out


@pytest.mark.parametrize(
    "words",
    [[verb, *(["--attempt", "1", "--reason", "r"] if verb.startswith("force") else []), JOB]
     for verb in ("describe", "story", "logs", "wait", "cancel", "hold", "release", "retry", "force-complete", "force-fail")]
    + [["watch", JOB], ["runs", "history", JOB], ["runs", "show", JOB], ["runs", "cancel", JOB], ["graph", JOB], ["runs"], ["runs", "list"], ["rules", "list"], ["playbooks", "list"], ["link"], ["queue"], ["jobs"], ["files"], ["pilots"], ["alerts"], ["safeguards"], ["audit"], ["audit", "verify"], ["events"], ["status"], ["submit", "--", "true"]],
)  # fmt: skip
def test_errors_have_their_codes_and_never_touch_stdout(forestay: Shell, api: FakeApi, words: list[str]) -> None:
    own = next((place for place, word in enumerate(words[1:], 1) if word not in COMMANDS[words[0]]), len(words))
    verb, rest = words[:own], words[own:]
    if JOB in words:
        missing = forestay(*words)
        assert (missing.code, missing.out) == (3, "")
    forestay.environment["FORESTAY_TOKEN"] = "another-token"
    refused = forestay(*words)
    assert (refused.code, refused.out) == (4, "")
    assert "FORESTAY_TOKEN" in refused.err
    forestay.environment["FORESTAY_SERVER"] = "http://127.0.0.1:9"
    away = forestay(*verb, "--patience", "0", *rest)
    assert (away.code, away.out) == (6, "")
    assert "http://127.0.0.1:9" in away.err


def test_errors_in_json(forestay: Shell) -> None:
    ended = forestay("describe", "--json", JOB)
    assert (ended.code, ended.out) == (3, "")
    error = json.loads(ended.err)["error"]
    assert (error["exit_code"], error["status"]) == (3, 404)


def test_quiet_and_verbose(forestay: Shell, api: FakeApi) -> None:
    assert forestay("pilots", "-q").err == ""
    assert api.url in forestay("status", "-v").err
    assert forestay("describe", "-q", JOB).err != ""


def test_a_server_that_is_not_one_of_ours(forestay: Shell, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "answer", lambda asked: (200, "<html>welcome</html>"))
    ended = forestay("status")
    assert (ended.code, ended.out) == (1, "")
    assert "is this a Forestay server" in ended.err


def test_users_text_cannot_steer_a_terminal(forestay: Shell, api: FakeApi) -> None:
    nasty = "x\x1b]0;owned\x07\x9b2J\u202egnp\r\ny"
    api.put(job_json(1, name=nasty, labels={"k": nasty}, state="faulted", attempt=1))
    fields = {
        "rev": 1,
        "at": "2026-05-01T10:00:00Z",
        "event": "hold",
        "state": "x",
        "attempt": 0,
        "by": nasty,
        "note": "",
        "words": nasty,
    }
    api.stories[JOB] = {"story": [fields], "evidence": []}
    api.logs[JOB] = nasty
    for words in (
        ["queue"],
        ["jobs"],
        ["describe", JOB],
        ["story", JOB],
        ["queue", "-o", "%j"],
        ["describe", "--json", JOB],
    ):
        shown = forestay(*words).out
        assert "owned" in shown
        assert not set("\x07\x1b\x9b\u202e\r") & set(shown), words
    assert forestay("describe", "--json", JOB).json["job"]["name"] == nasty
    assert on_terminal(forestay, ["logs", JOB]) == "x\\x1b]0;owned\\x07\\x9b2J\\u202egnp\r\ny"
    assert forestay("logs", JOB).out == nasty


def test_a_reader_that_has_seen_enough(forestay: Shell, api: FakeApi) -> None:
    api.put(*(job_json(number) for number in range(3_000)))
    process = forestay.start(["jobs", "--all", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
    process.stderr.close()


def test_a_person_is_asked_before_something_is_destroyed(forestay: Shell, api: FakeApi) -> None:
    api.put(job_json(1))
    screen = on_terminal(forestay, ["cancel", JOB[:8]], answer=b"n\n", question=b"[y/N]")
    assert "align of alice, available" in screen
    assert "Nothing was changed" in screen
    assert api.jobs[JOB]["state"] == "available"
    assert "cancelled" in on_terminal(forestay, ["cancel", "--yes", JOB])


def test_each_example_has_a_line_of_its_own(forestay: Shell) -> None:
    shown = [line.strip() for line in forestay("inbox", "list", "--help").out.splitlines()]
    first = shown.index("forestay inbox list --me")
    assert shown[first + 1] == "forestay inbox --cause memory --owner ada --since 1d --by host"


def test_help_is_quick_because_nothing_slow_is_loaded() -> None:
    code = "import sys, forestay.apps.cli; print(sorted({'httpx', 'rich', 'orjson', 'pydantic', 'fastapi'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def on_terminal(shell: Shell, words: list[str], *, answer: bytes = b"", question: bytes = b"") -> str:
    """What a person would see, stdout and stderr together."""
    leader, follower = pty.openpty()
    environment = dict(shell.environment)
    shell.environment |= {"TERM": "xterm", "LANG": "C.UTF-8"}
    process = shell.start(words, stdin=follower, stdout=follower, stderr=follower)
    shell.environment = environment
    os.close(follower)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.5)[0]:
            try:
                piece = os.read(leader, 65_536)
            except OSError:  # the other side is closed
                break
            seen += piece
            if answer and question in seen:
                os.write(leader, answer)
                answer = b""
        elif process.poll() is not None:
            break
    os.close(leader)
    process.wait()
    return seen.decode()


def test_the_token_is_in_no_argument(forestay: Shell, tmp_path: Path) -> None:
    assert not any("token" in name and "file" not in name for name in _options(forestay))
    assert TOKEN not in " ".join(_options(forestay))


def _options(forestay: Shell) -> list[str]:
    return [word for words in CALLS for word in forestay(*words, "--help").out.split() if word.startswith("--")]


@pytest.mark.finding("F-D17")
def test_an_error_of_an_expression_is_told_once_with_its_line_and_a_mark(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(Options())
    session.sources["condition"] = 'confidence > 0.8 &&\n  数据 = "x"'
    problem = {"at": "condition:2:6", "detail": "use == to compare"}
    other = {"at": "condition:1:1", "detail": "something else"}
    session.report(BadRequest("2:6: use == to compare", status=422, problems=[problem, other]))
    assert capsys.readouterr().err.splitlines() == [
        "error: condition:2:6: use == to compare",
        '      数据 = "x"',
        "           ^",
        "  condition:1:1: something else",
        "    confidence > 0.8 &&",
        "    ^",
    ]
    session.report(BadRequest("it is not true", status=422, problems=[{"at": "rule", "detail": "it is not true"}]))
    assert capsys.readouterr().err == "error: rule: it is not true\n"
