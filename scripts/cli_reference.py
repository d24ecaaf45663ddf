"""Writes the verbs, and the commands of operators, into docs/reference/cli.md from the command line itself; a test compares the two.

Run with `uv run python scripts/cli_reference.py` after a change of a verb or an option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.main

from forestay.apps import processes
from forestay.apps.cli import app
from forestay.apps.cli.verb import COMMON

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
MARK = "<!-- What follows is written by scripts/cli_reference.py. -->\n"


def verbs() -> str:
    """The generated part: each verb with its options."""
    group: Any = typer.main.get_command(app)
    parts = [
        "## The verbs\n",
        "Every verb takes, beside its own options:\n",
        _table(one for one in group.commands["status"].params if one.name in COMMON),
    ]
    for name, command in group.commands.items():
        summary, _, example = command.help.partition("\n\n")
        own = [one for one in command.params if one.name not in COMMON]
        parts.append(f"### {name}\n\n{_prose(summary)}\n\n```console\n$ {example.strip()}\n```\n")
        if own:
            parts.append(_table(own))
    return "\n".join(parts)


def for_operators() -> str:
    """The processes, and what is run beside them with their settings."""
    group: Any = typer.main.get_command(processes.app)
    parts = [
        "## For operators\n",
        "These read [the settings of the processes](settings.md), and not what a client is told: run them where the processes run, as their user. `site` reads a file of its own, `watcher` what a client is told, and [the pilot](pilot.md) its options alone.\n",
    ]
    for name, command in group.commands.items():
        text, _, example = command.help.partition("\n\nforestay ")
        parts.append(f"### {name}\n\n{_prose(text)}\n")
        if example:
            parts.append(f"```console\n$ forestay {example.strip()}\n```\n")
        if command.params:
            parts.append(_table(command.params))
    return "\n".join(parts)


def _table(parameters: Any) -> str:
    lines = ["| option | meaning |", "| --- | --- |"]
    for one in parameters:
        if one.param_type_name == "argument":
            name = f"`{(one.metavar or one.name.upper()).strip('[]')}`"
        else:
            value = "" if one.is_flag or one.is_bool_flag else f" {one.metavar or one.name.upper()}"
            opts = [*one.opts, *one.secondary_opts]
            name = ", ".join(f"`{opt}{value if place == len(opts) - 1 else ''}`" for place, opt in enumerate(opts))
        needed = " Needed." if one.required and one.param_type_name == "option" else ""
        name = name.replace("|", "\\|")
        lines.append(f"| {name} | {_prose(one.help)}{needed} |")
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    """The whole page as it should be."""
    by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return by_hand + MARK + "\n" + verbs() + "\n" + for_operators()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
