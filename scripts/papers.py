"""What Forestay has for each claim, figure and table of the papers: the cells of docs/explanation/papers.md that papers.toml gives.

``just ledger --write`` writes them, with the tests of each row.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FIGURES = "## Figures and tables of the papers"
COLUMNS = "| id | paper says | where | we measured | picture | command | tests |"
FIGURE_COLUMNS = "| figure | paper shows | we measured | picture | command | tests |"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a claim or a figure is described, shown and measured again."""

    page: str
    picture: str
    command: str
    weaker: str
    """In what ours is less than the claim; empty: in nothing."""

    @property
    def cells(self) -> str:
        measured = (
            f"**weaker** than the claim: {self.weaker} ([more]({self.page}))"
            if self.weaker
            else f"[holds]({self.page})"
        )
        picture = f"[picture]({self.picture})" if self.picture else "–"
        return f"{measured} | {picture} | `{self.command}`"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure or table of a paper, and the claims whose tests show ours."""

    id: str
    shows: str
    rows: tuple[str, ...]
    evidence: Evidence


def _evidence(fields: Mapping[str, str]) -> Evidence:
    return Evidence(fields["page"], fields.get("picture", ""), fields["command"], fields.get("weaker", ""))


def read_evidence(path: Path) -> tuple[dict[str, Evidence], tuple[Figure, ...]]:
    """The evidence of each claim, and of each figure."""
    plain = tomllib.loads(path.read_text(encoding="utf-8"))
    claims: dict[str, Evidence] = {}
    for group in plain.get("claims", []):
        for row in group["rows"]:
            if row in claims:
                raise ValueError(f"{path.name}: {row} is there twice")
            claims[row] = _evidence(group)
    figures = tuple(
        Figure(fields["id"], fields["shows"], tuple(fields["rows"]), _evidence(fields))
        for fields in plain.get("figures", [])
    )
    return claims, figures


def figure_lines(figures: tuple[Figure, ...]) -> list[str]:
    """The table of figures."""
    if not figures:
        return []
    return [
        FIGURES,
        "",
        "What each figure and table of the five papers shows, and where ours is seen. The tests are those of the claims named.",
        "",
        FIGURE_COLUMNS,
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {figure.id} | {figure.shows} | {figure.evidence.cells} | {', '.join(figure.rows)} |"
            for figure in figures
        ),
    ]
