"""The site's notice to everybody who has a page open, such as "Maintenance on Friday": the text of a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

from forestay.ports.clock import Clock
from forestay.services.shared.coalescing_cache import CoalescingCache

FRESH = 1.0
"""Seconds for which the text is cached, however many pages are open."""
LONGEST = 500
"""Characters that are shown; a file may be longer, but is not read further than this needs."""


class SiteNotice:
    """Reads the file when somebody asks. A file that is missing or cannot be read is no notice."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._cache = CoalescingCache[str, str](clock, FRESH)

    async def text(self) -> str:
        """The notice as one line; empty: there is none."""
        path = self._path
        if path is None:
            return ""
        return await self._cache.get("", lambda: asyncio.to_thread(_read, path))


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(4 * LONGEST)
    except OSError:
        return ""
    words = start.decode("utf-8", "ignore").split()
    return "".join(letter for letter in " ".join(words) if letter.isprintable())[:LONGEST]
