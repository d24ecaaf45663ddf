"""What the pages tell people to type: every command, sub-command and option of `forestay` is one that the command has; no page names a place of the machine it was written on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from forestay.apps.cli.lazy_commands import CommandGroup
from forestay.apps.entry import app

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts),
    *sorted((ROOT / "examples").rglob("*.md")),
]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(forestay [^`]+)`")
CALL = re.compile(r"(?:^|[|;&(] *|bin/|\b[A-Z_]+=\S+ )forestay (.*)")


def told(text: str) -> Iterator[str]:
    """Everything that looks like a call of the command: in what is to be typed, and in a sentence."""
    for kind, block in BLOCK.findall(text):
        if kind in ("console", "sh", "bash", "text"):
            for line in block.replace("\\\n", " ").splitlines():
                typed = line.removeprefix("$ ").partition(" #")[0]
                yield from (match[1] for match in CALL.finditer(typed))
    for words in INLINE.findall(BLOCK.sub("", text)):
        yield words.removeprefix("forestay ")


def wrong(call: str, verbs: dict[str, Any]) -> str:
    """Why the command would not take it; empty: it would. What stands in a pipe behind it, or belongs to a job's own command, is not ours."""
    try:
        words = shlex.split(re.split(r" [|>&<] ?| -- |\$\(|\)(?:$| )", call)[0])
    except ValueError:
        return ""
    if not words or words[0] in ("pilot", "--version", "--help") or not re.fullmatch(r"[a-z-]+", words[0]):
        return ""  # the pilot reads its options itself; `forestay VERB` is a way to speak
    if words[0] not in verbs:
        return f"there is no command {words[0]}"
    command, rest = verbs[words[0]], words[1:]
    if isinstance(command, CommandGroup):
        sub = rest[0] if rest and re.fullmatch(r"[a-z-]+", rest[0]) and rest[0][0] != "-" else command.default
        if rest and rest[0] in ("--help", "…"):
            return ""
        if sub not in command.commands:
            return f"{words[0]} has no sub-command {sub}"
        command = command.commands[sub]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    asked = [word.partition("=")[0] for word in rest if re.match(r"--[a-z]", word)]
    unknown = [word for word in asked if word not in known]
    return f"{words[0]} has no option {', '.join(unknown)}" if unknown else ""


@pytest.fixture(scope="module")
def verbs() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = dict(group.commands)
    return commands


def test_every_command_that_a_page_names_is_one(verbs: dict[str, Any]) -> None:
    calls = [(page, call) for page in PAGES for call in told(page.read_text())]
    assert len(calls) > 250
    lines = [f"{page.relative_to(ROOT)}: forestay {call}: {why}" for page, call in calls if (why := wrong(call, verbs))]
    assert lines == []


def test_a_wrong_command_would_be_found(verbs: dict[str, Any]) -> None:
    page = "say `forestay sumbit x`:\n```console\n$ JOB=$(forestay submit --nmae hello -- echo --hidden)\n$ x | forestay wait - --timeout 9\n```\n"
    assert [wrong(call, verbs) for call in told(page)] == [
        "submit has no option --nmae",
        "",
        "there is no command sumbit",
    ]


def test_no_page_names_the_machine_that_it_was_written_on() -> None:
    places = re.compile(
        r"/work/|/root/|/home/(?!user)|\bworktree\b|registry\.npmjs|pypi\.org/simple|artifactory", re.IGNORECASE
    )
    lines = [f"{page.relative_to(ROOT)}: {hit[0]}" for page in PAGES for hit in places.finditer(page.read_text())]
    assert lines == []
