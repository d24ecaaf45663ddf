"""The machine's own clock and random numbers."""

from __future__ import annotations

import secrets
import time
from uuid import uuid4


class SystemClock:
    """Implements `ports.clock.Clock`."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Implements `ports.clock.Ids`."""

    def __init__(self) -> None:
        self._random = b""

    def claim(self) -> str:
        # Many at once from the system: a call for each would be a large part of a claim's cost.
        if not self._random:
            self._random = secrets.token_bytes(16 * 256)
        mine, self._random = self._random[:16], self._random[16:]
        return mine.hex()

    def job(self) -> str:
        return str(uuid4())
