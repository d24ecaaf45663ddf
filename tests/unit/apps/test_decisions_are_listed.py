"""Every decision record says its number, title, status and date, is named after its title, and is listed once in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
RECORDS = sorted(
    [*(DOCS / "decisions").glob("0*.md"), *(DOCS / "contributing").glob("0*.md")], key=lambda path: path.name
)
STATUS = re.compile(r"Status: (accepted|rejected|superseded by \[decision \d+\]\(\S+\)), \d{1,2} [A-Z][a-z]+ \d{4}[.;]")


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'s", "s").replace("/", "")).strip("-")


def test_each_number_is_used_once() -> None:
    numbers = [path.name[:4] for path in RECORDS]
    assert len(numbers) > 90
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.name[:4])
def test_a_record_has_title_status_date_and_a_line_in_the_index(path: Path) -> None:
    first, blank, status = path.read_text().splitlines()[:3]
    head = re.fullmatch(r"# (\d+)\. (.+)", first)
    assert head is not None, first
    assert path.name == f"{int(head[1]):04d}-{slug(head[2])}.md"
    assert blank == ""
    assert STATUS.match(status), status
    target = path.name if path.parent.name == "decisions" else f"../contributing/{path.name}"
    assert (DOCS / "decisions/index.md").read_text().count(f"- [{head[1]}. {head[2]}]({target}): ") == 1
