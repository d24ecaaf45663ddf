"""Named tables of the settings file."""

from __future__ import annotations

from collections.abc import Iterable


def check_unique(names: Iterable[str], what: str) -> None:
    """`ValueError` if two tables have the same name; `what`: their kind, in the plural."""
    known = list(names)
    if double := sorted({name for name in known if known.count(name) > 1}):
        raise ValueError(f"several {what} have the name {', '.join(double)}")
