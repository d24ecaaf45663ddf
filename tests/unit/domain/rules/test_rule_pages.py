"""The reference of rules says what the code says."""

from __future__ import annotations

from scripts.rule_context import PAGE, page


def test_the_fields_in_the_reference_are_those_of_the_context() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: uv run python scripts/rule_context.py"
