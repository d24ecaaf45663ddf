"""Reads the files named on the command line."""

from __future__ import annotations

from pathlib import Path

import typer


def read_text_file(file: Path, *, hint: str | None = None) -> str:
    """The text of a file; the command is refused if it cannot be read. ``hint``: the option that names the file."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint=hint) from error
