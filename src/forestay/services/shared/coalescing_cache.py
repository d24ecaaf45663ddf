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
    """What was seen last under each key, for as long as it is fresh."""

    clock: Clock
    fresh: float
    """Seconds that a look is good for."""
    most: int = 200
    """Looks that are remembered."""
    _looks: OrderedDict[Key, tuple[float, asyncio.Task[Seen]]] = field(default_factory=OrderedDict)

    async def get(self, key: Key, look: Callable[[], Coroutine[Any, Any, Seen]]) -> Seen:
        now = self.clock.monotonic()
        known = self._looks.get(key)
        if known is None or (known[1].done() and (now - known[0] >= self.fresh or known[1].exception() is not None)):
            known = self._looks[key] = (now, asyncio.create_task(look()))
            self._looks.move_to_end(key)
            while len(self._looks) > self.most:
                self._looks.popitem(last=False)
        # Whoever goes away must not take the answer from the others.
        return await asyncio.shield(known[1])

    def forget(self, key: Key) -> None:
        """What was seen is no longer so."""
        self._looks.pop(key, None)
