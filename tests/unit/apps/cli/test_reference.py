"""The reference page says what the command line really has."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer.main
from scripts import cli_pictures, cli_reference

from forestay.apps.cli.lazy_commands import CommandGroup
from forestay.apps.entry import app

_GROUP: Any = typer.main.get_command(app)


def calls() -> dict[str, Any]:
    """Every command and sub-command, by what is typed."""
    commands: dict[str, Any] = {}
    for name in _GROUP.commands:
        command = _GROUP.commands[name]
        commands[name] = command
        if isinstance(command, CommandGroup):
            commands |= {f"{name} {sub}": command.commands[sub] for sub in command.commands}
    return commands


def test_the_page_is_as_the_command_line_has_it() -> None:
    assert cli_reference.page() == cli_reference.PAGE.read_text(), "run: uv run python scripts/cli_reference.py"


def test_every_value_has_a_name() -> None:
    assert " None`" not in cli_reference.commands()


def test_every_option_on_the_page_exists() -> None:
    """Also in the part written by hand."""
    known = {
        opt
        for command in calls().values()
        for parameter in command.params
        for opt in (*parameter.opts, *parameter.secondary_opts)
    }
    text, _, _ = cli_reference.PAGE.read_text().partition(cli_reference.MARK)
    ours = re.sub(r"^\| `s[a-z]+ [^|]*\|", "|", text, flags=re.MULTILINE)  # Slurm's own column
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours)) <= known | {"--help"}


def test_every_command_on_the_page_is_a_verb() -> None:
    page = cli_reference.PAGE.read_text()
    results = re.findall(r"`forestay ([a-z][a-z-]*)", page)
    assert set(results) <= set(_GROUP.commands)
    assert set(calls()) == set(re.findall(r"^####? (\S+(?: \S+)?)$", page, flags=re.MULTILINE))
    for line in re.findall(r"^\$ (.*)$", page, flags=re.MULTILINE):
        shlex.split(line)


@pytest.mark.parametrize("name", cli_pictures.PICTURES)
def test_the_pictures_show_the_command_line(name: str) -> None:
    kept = (cli_pictures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert cli_pictures.picture(name) == kept, "run: uv run just command-line"
    assert "url(http" not in kept
