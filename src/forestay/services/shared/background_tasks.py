"""Tasks that a service runs beside its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Running tasks. They are held here because the event loop keeps only weak references."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        errand = asyncio.create_task(work)
        self._under_way.add(errand)
        errand.add_done_callback(self._under_way.discard)

    def stop(self) -> None:
        """Cancel all of them."""
        for errand in self._under_way:
            errand.cancel()
