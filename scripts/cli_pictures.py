"""Draws what `forestay` shows at 100 columns into docs/images; a test compares the pictures with the command line.

Run with `uv run just command-line` after a change of a command.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from forestay.apps.entry import app

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
PICTURES = {"forestay": [], "forestay-help": ["--help"], "forestay-rules-help": ["rules", "--help"]}
WIDTH = 100
# A picture in the docs fetches nothing: the reader's own fixed-width font will do.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
COLOURED = {"COLUMNS": str(WIDTH), "CLICOLOR_FORCE": "1", "NO_COLOR": None, "TERM": "xterm"}


def picture(name: str) -> str:
    """One picture, as it should be."""
    words = PICTURES[name]
    shown = CliRunner().invoke(app, words, env=COLOURED, color=True, prog_name="forestay", terminal_width=WIDTH - 2)
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(shown.stdout.rstrip("\n")), soft_wrap=True)
    title = " ".join(["forestay", *words])
    return console.export_svg(title=title, code_format=FORMAT, unique_id=name) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in PICTURES:
        (FOLDER / f"{each}.svg").write_text(picture(each), encoding="utf-8")
