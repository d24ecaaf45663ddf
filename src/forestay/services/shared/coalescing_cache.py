"""Shares one read of the store among all callers that want the same at about the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from forestay.ports.clock import Clock

Key = TypeVar("Key", bound=Hashable)
Seen = TypeVar("Seen")


@dataclass(slots=True)
class CoalescingCache(Generic[Key, Seen]):
    """The last result for each key, as long as it is fresh."""

    clock: Clock
    fresh: float
    """Seconds for which a result is fresh."""
    most: int = 200
    """The most results that are cached."""
    _looks: OrderedDict[Key, tuple[float, asyncio.Task[Seen]]] = field(default_factory=OrderedDict)

    async def get(self, key: Key, look: Callable[[], Coroutine[Any, Any, Seen]]) -> Seen:
        now = self.clock.monotonic()
        known = self._looks.get(key)
        if known is None or (known[1].done() and (now - known[0] >= self.fresh or known[1].exception() is not None)):
            known = self._looks[key] = (now, asyncio.create_task(look()))
            self._looks.move_to_end(key)
            while len(self._looks) > self.most:
                self._looks.popitem(last=False)
        # A cancelled caller must not cancel the read for the others.
        return await asyncio.shield(known[1])

    def forget(self, key: Key) -> None:
        """Discard the result for a key."""
        self._looks.pop(key, None)
