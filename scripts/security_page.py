"""Write docs/explanation/security.md from the table of requirements (tests/system/identity/table.py); a test compares the two.

Run with `uv run python scripts/security_page.py` after a change of the table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.system.identity.table import EXPECTED, INPUTS, Row  # noqa: E402 - the table is not part of the package

PAGE = ROOT / "docs" / "explanation" / "security.md"
HEAD = """# Security: untrusted input and attackers

<!-- Written by scripts/security_page.py from tests/system/identity/table.py. -->

Each row names the tests that fail when the protection is lost. The last column lists what is not implemented or not tested.
"""


def table(rows: Sequence[Row], *, numbered: bool) -> Iterator[str]:
    counts = {word: sum(row.shown == word for row in rows) for word in ("yes", "in part", "no")}
    summary = f"Of {len(rows)} rows {counts['yes']} are implemented and tested"
    parts = [f"{counts['in part']} in part" if counts["in part"] else "", f"{counts['no']} not" if counts["no"] else ""]
    yield ", ".join([summary, *filter(None, parts)]) + "."
    yield ""
    yield f"| {'# | ' if numbered else ''}{'input' if numbered else 'requirement'} | protection | tested by | missing |"
    yield f"| {'--: | ' if numbered else ''}--- | --- | --- | --- |"
    for number, row in enumerate(rows, 1):
        by = ", ".join(f"`tests/{test}`" for test in row.tests)
        yield f"| {f'{number} | ' if numbered else ''}{row.asked} | {row.done} | {by or '–'} | {row.missing or '–'} |"


def page() -> str:
    """The whole page as it should be."""
    lines = [HEAD, "## Authentication and authorisation", "", *table(EXPECTED, numbered=False)]
    return "\n".join([*lines, "", "## Untrusted input", "", *table(INPUTS, numbered=True), ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
