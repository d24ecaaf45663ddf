"""Writes docs/explanation/security.md from the table of what is asked for (tests/identity/table.py); a test compares the two.

Run with `uv run python scripts/security_page.py` after a change of the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.identity.table import EXPECTED, INPUTS, Row  # noqa: E402 - the table is not part of the package

PAGE = ROOT / "docs" / "explanation" / "security.md"
HEAD = """# What is done against bad input and bad people, and the test that shows it

<!-- Written by scripts/security_page.py from tests/identity/table.py. -->

Each row names tests that fail when it no longer holds. What is not done, or not shown, is said in the last column.
"""


def table(rows: Sequence[Row], *, numbered: bool) -> Iterator[str]:
    counts = {word: sum(row.shown == word for row in rows) for word in ("yes", "in part", "no")}
    told = f"Of {len(rows)} rows {counts['yes']} are held and shown"
    parts = [f"{counts['in part']} in part" if counts["in part"] else "", f"{counts['no']} not" if counts["no"] else ""]
    yield ", ".join([told, *filter(None, parts)]) + "."
    yield ""
    yield f"| {'# | ' if numbered else ''}{'input' if numbered else 'asked for'} | what is done | shown by | missing |"
    yield f"| {'--: | ' if numbered else ''}--- | --- | --- | --- |"
    for number, row in enumerate(rows, 1):
        by = ", ".join(f"`tests/{one}`" for one in row.tests)
        yield f"| {f'{number} | ' if numbered else ''}{row.asked} | {row.done} | {by or '–'} | {row.missing or '–'} |"


def page() -> str:
    """The whole page as it should be."""
    lines = [HEAD, "## Who asks, and what they may do", "", *table(EXPECTED, numbered=False)]
    return "\n".join([*lines, "", "## Bad input", "", *table(INPUTS, numbered=True), ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
