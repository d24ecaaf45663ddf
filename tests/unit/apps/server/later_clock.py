"""A clock that is put forward by hand."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class LaterClock:
    """Ahead of the time by some milliseconds, for what waits for hours."""

    ahead: int = 0

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead

    def monotonic(self) -> float:
        return time.monotonic()
