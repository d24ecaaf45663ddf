"""The machine's own time and randomness."""

from __future__ import annotations

import secrets
import time
from uuid import uuid4


class SystemClock:
    """Fills `ports.clock.Clock`."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class RandomIds:
    """Fills `ports.clock.Ids`."""

    def claim(self) -> str:
        return secrets.token_hex(16)

    def job(self) -> str:
        return str(uuid4())
