"""A page that promises something names the test that shows it; the test must be there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r"`(tests/[A-Za-z0-9_/.]+\.py)::([A-Za-z0-9_]+)`")


@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("explanation/what-hurts.md", 20),
        ("explanation/security.md", 20),
        ("explanation/what-it-does-not-promise.md", 1),
    ],
)
def test_the_tests_that_a_page_names_are_there(page: str, least: int) -> None:
    named = NAMED.findall((ROOT / "docs" / page).read_text())
    assert len(named) > least
    missing = [
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / file).exists() or not re.search(rf"def {test}\b", (ROOT / file).read_text())
    ]
    assert missing == []


def test_every_pain_has_its_tests() -> None:
    text = (ROOT / "docs/explanation/what-hurts.md").read_text()
    parts = re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(parts) == 15
    for part in parts:
        assert NAMED.search(part), part.splitlines()[0]
