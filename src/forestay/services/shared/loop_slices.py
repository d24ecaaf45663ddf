"""Divides long work on the event loop into slices, so that other tasks run in between."""

from __future__ import annotations

import asyncio
import time

SLICE = 0.002
"""Seconds that work may hold the event loop: a fraction of the time of the fastest request."""


class LoopSlices:
    """One piece of work that gives the loop to others as soon as it has held it for a slice."""

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = SLICE if seconds is None else seconds
        self._since = time.perf_counter()
        self.longest = 0.0
        """Seconds of the longest slice so far; longer than the limit when one step took longer."""
        self.total = 0.0
        """Seconds of all slices that are over."""

    async def pause(self) -> None:
        """Called between steps; waits only when the slice is over."""
        spent = time.perf_counter() - self._since
        if spent >= self._seconds:
            self.longest = max(self.longest, spent)
            self.total += spent
            await asyncio.sleep(0)
            self._since = time.perf_counter()
