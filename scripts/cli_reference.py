"""Writes the commands into docs/reference/cli.md from the command line itself; a test compares the two.

Run with `uv run python scripts/cli_reference.py` after a change of a command or an option.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from forestay.apps import processes
from forestay.apps.cli.command import COMMON
from forestay.apps.cli.lazy_commands import CommandGroup
from forestay.apps.entry import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
MARK = "<!-- What follows is written by scripts/cli_reference.py. -->\n"
SHARED = {*COMMON, "form"}
PROCESSES = "read [the settings of the processes](settings.md), not those of a client: run them where the processes run, as their user. `site` reads a file of its own, `watcher` the settings of a client, and [the pilot](pilot.md) only its options."


def commands() -> str:
    """The generated part: each command with its options, by help panel."""
    group: Any = typer.main.get_command(app)
    parts = [
        "## Options of all commands\n",
        "Every command that talks to a server takes:\n",
        _table(parameter for parameter in group.commands["status"].params if parameter.name in SHARED),
        "Every command that prints a list takes:\n",
        _table(parameter for parameter in group.commands["alerts"].params if parameter.name == "form"),
        f"{', '.join(f'`{name}`' for name in processes.COMMANDS)} {PROCESSES}\n",
    ]
    for panel, names in group.commands.panels().items():
        parts.append(f"## {panel}\n")
        for name in names:
            parts += _command(name, group.commands[name])
    return "\n".join(parts)


def _command(name: str, command: Any, level: str = "###") -> Iterator[str]:
    text, example = _split(command.help)
    yield f"{level} {name}\n\n{_prose(text)}\n"
    if isinstance(command, CommandGroup):
        if command.default:
            yield f"Without a sub-command, `forestay {name}` means `forestay {name} {command.default}`.\n"
        for sub in command.commands:
            yield from _command(f"{name} {sub}", command.commands[sub], level + "#")
        return
    if example:
        yield f"```console\n$ {example}\n```\n"
    own = [
        parameter
        for parameter in command.params
        if parameter.name not in SHARED or name.split()[0] in processes.COMMANDS
    ]
    if own:
        yield _table(own)


def _split(text: str) -> tuple[str, str]:
    """What a command does, and its example."""
    # Click's mark of a paragraph whose lines stay apart.
    paragraphs = text.replace("\b\n", "").split("\n\n")
    example = paragraphs.pop().strip() if paragraphs[-1].strip().startswith("forestay ") else ""
    return " ".join(paragraphs), "\n$ ".join(line.strip() for line in example.splitlines())


def _table(parameters: Any) -> str:
    lines = ["| option | meaning |", "| --- | --- |"]
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            name = f"`{(parameter.metavar or parameter.name.upper()).strip('[]')}`"
        else:
            value = (
                "" if parameter.is_flag or parameter.is_bool_flag else f" {parameter.metavar or parameter.name.upper()}"
            )
            opts = [*parameter.opts, *parameter.secondary_opts]
            name = ", ".join(f"`{opt}{value if place == len(opts) - 1 else ''}`" for place, opt in enumerate(opts))
        needed = " Required." if parameter.required and parameter.param_type_name == "option" else ""
        name = name.replace("|", "\\|")
        lines.append(f"| {name} | {_prose(parameter.help)}{needed} |")
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def page() -> str:
    """The whole page as it should be."""
    by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return by_hand + MARK + "\n" + commands()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
