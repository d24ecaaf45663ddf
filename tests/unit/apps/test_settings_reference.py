"""The page of settings is what the settings say."""

from __future__ import annotations

from scripts import settings_reference


def test_the_page_is_current() -> None:
    assert settings_reference.page() == settings_reference.PAGE.read_text(), (
        "run: uv run python scripts/settings_reference.py"
    )


def test_every_setting_says_what_it_is_for() -> None:
    assert settings_reference.silent() == []
