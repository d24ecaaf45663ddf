"""Progress as HTML for a notebook: self-contained, with user texts escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

STYLE = "font:13px/1.5 system-ui,sans-serif;margin:.3em 0"


def progress_html(title: str, *, well: int, bad: int, count: int, words: str = "", picture: str = "") -> str:
    """One line with a bar, and below it a picture if there is one."""
    ended = well + bad
    text = f"{ended} of {count} ended" + (f", {bad} of them badly" if bad else "") + (f"; {words}" if words else "")
    bar = f'<progress max="{count}" value="{ended}" aria-label="{escape(title)}: {escape(text)}"></progress> '
    shown = f'<div style="overflow-x:auto">{picture}</div>' if picture else ""
    return f'<div style="{STYLE}"><strong>{escape(title)}</strong> {bar if count else ""}{escape(text)}{shown}</div>'


def facts_html(title: str, facts: Mapping[str, object]) -> str:
    """A few facts, each in a row."""
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;padding-right:1em">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in facts.items()
        if value not in (None, "")
    )
    caption = f'<caption style="text-align:left;font-weight:600">{escape(title)}</caption>'
    return f'<table style="{STYLE}">{caption}<tbody>{rows}</tbody></table>'
