"""Writes the typed context of rules into docs/reference/rules.md; a test compares the two.

Run with `uv run python scripts/rule_context.py` after a change of a field.
"""

from __future__ import annotations

from pathlib import Path

from forestay.domain.rules.context import FIELDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "rules.md"
MARK = "<!-- What follows is written by scripts/rule_context.py. -->\n"


def fields() -> str:
    """The generated part: each field with its type and meaning."""
    lines = ["| field | type | meaning |", "| --- | --- | --- |"]
    for field in FIELDS:
        kind = f"`{field.kind}`" + (" or `null`" if field.optional else "")
        lines.append(f"| `{field.name}` | {kind} | {field.words.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page as it should be."""
    by_hand, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return by_hand + MARK + "\n" + fields()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
