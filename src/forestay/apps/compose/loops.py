"""Service loops: kept running, and stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog

log = structlog.get_logger()


async def run_loops(loops: dict[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run service loops for ever. One that fails is a bug: it is reported and restarted."""

    async def keep(name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await loop()
            except Exception:
                log.exception("a background loop failed and is restarted", loop=name)
                await asyncio.sleep(1.0)

    async with asyncio.TaskGroup() as group:
        for name, loop in loops.items():
            group.create_task(keep(name, loop), name=name)


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def until_stopped() -> None:
    """Wait for SIGTERM or SIGINT."""
    event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    await event.wait()
