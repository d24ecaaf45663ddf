"""Writes the verbs into docs/reference/cli.md from the command line itself; a test compares the two.

Run with `uv run python scripts/cli_reference.py` after a change of a verb or an option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer.main

from holdfast.apps.cli import app
from holdfast.apps.cli.verb import COMMON

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


def _table(parameters: Any) -> str:
    lines = ["| option | meaning |", "| --- | --- |"]
    for one in parameters:
        if one.param_type_name == "argument":
            name = f"`{one.metavar.strip('[]')}`"
        else:
            value = "" if one.is_flag or one.is_bool_flag else f" {one.metavar}"
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
    return by_hand + MARK + "\n" + verbs()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
