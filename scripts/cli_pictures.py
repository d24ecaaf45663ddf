"""Draws what `forestay` shows at 100 columns into docs/images; a test compares the pictures with the command line, and with what was recorded.

Run with `uv run just command-line` after a change of a command, and `uv run just demo-recording` after a change of the demonstration.
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

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDER = DOCS / "images"
PICTURES = {
    "forestay": [],
    "forestay-help": ["--help"],
    "forestay-rules-help": ["rules", "--help"],
    "demo": ["demo", "--auto"],
}
RECORDED = {"demo": DOCS / "tutorials" / "demo.txt"}
"""What takes minutes to run: drawn from what a run of it printed."""
WIDTH = 100
# A picture in the docs fetches nothing: the reader's own fixed-width font will do.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
COLOURED = {"COLUMNS": str(WIDTH), "CLICOLOR_FORCE": "1", "NO_COLOR": None, "TERM": "xterm"}


def picture(name: str) -> str:
    """One picture, as it should be."""
    words = PICTURES[name]
    if name in RECORDED:
        shown = RECORDED[name].read_text(encoding="utf-8")
    else:
        run = CliRunner().invoke(app, words, env=COLOURED, color=True, prog_name="forestay", terminal_width=WIDTH - 2)
        shown = run.stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi(shown.rstrip("\n")), soft_wrap=name not in RECORDED)
    title = " ".join(["forestay", *words])
    return console.export_svg(title=title, code_format=FORMAT, unique_id=name) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each in PICTURES:
        (FOLDER / f"{each}.svg").write_text(picture(each), encoding="utf-8")
