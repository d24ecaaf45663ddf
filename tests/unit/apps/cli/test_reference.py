"""The reference page says what the command line really has."""

from __future__ import annotations

import re
import shlex
from typing import Any

import typer.main
from scripts import cli_reference
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.test_manners import VERBS

from forestay.apps import processes

_GROUP: Any = typer.main.get_command(processes.app)
OPERATORS = list(_GROUP.commands)


def test_the_page_is_as_the_command_line_has_it() -> None:
    assert cli_reference.page() == cli_reference.PAGE.read_text(), "run: uv run python scripts/cli_reference.py"


def test_every_value_has_a_name() -> None:
    assert " None`" not in cli_reference.verbs()


def test_every_option_on_the_page_exists(forestay: Shell) -> None:
    """Also in the part written by hand."""
    known = {word for verb in VERBS for word in re.findall(r"--[a-z-]+", forestay(verb, "--help").out)}
    text, _, _ = cli_reference.PAGE.read_text().partition(cli_reference.MARK)
    ours = re.sub(r"^\| `s[a-z]+ [^|]*\|", "|", text, flags=re.MULTILINE)  # Slurm's own column
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", ours)) <= known


def test_every_command_on_the_page_is_a_verb() -> None:
    found = re.findall(r"forestay ([a-z-]+)", cli_reference.PAGE.read_text())
    assert set(found) - set(VERBS) <= {*OPERATORS, "is"}
    assert {*VERBS, *OPERATORS} <= set(re.findall(r"^### (\S+)$", cli_reference.PAGE.read_text(), flags=re.MULTILINE))
    for line in re.findall(r"^\$ (.*)$", cli_reference.PAGE.read_text(), flags=re.MULTILINE):
        shlex.split(line)
