"""The page "Proof" is what the results say; `just proof` writes it."""

from __future__ import annotations

from bench.report.__main__ import wanted


def test_the_page_and_its_pictures_are_what_the_results_say() -> None:
    old = [path.name for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    assert not old, "run `just proof`"
