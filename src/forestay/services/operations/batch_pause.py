"""Bounds how much of the store's time a background removal takes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from forestay.ports.clock import Clock


@dataclass(slots=True)
class BatchPause:
    """Pauses after each batch as long as the batch took, times a factor: the store serves others too."""

    clock: Clock
    factor: float = 1.0
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock.monotonic()

    async def rest(self) -> None:
        """Called after each batch."""
        await asyncio.sleep(self.factor * (self.clock.monotonic() - self._began))
        self._began = self.clock.monotonic()
