"""The keeper process: orphans, run-time alerts, callbacks. Any number may run."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import chain

import structlog

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.compose.identity import ask_provider
from forestay.apps.compose.keeper import KeeperParts
from forestay.apps.compose.loops import run_loops, stop, until_told
from forestay.apps.compose.parts import make_parts
from forestay.apps.config.settings import Settings
from forestay.services.operations.know_callers import KnowCallers

log = structlog.get_logger()


async def keep(settings: Settings) -> None:
    """Run one keeper until it is told to stop."""
    parts = make_parts(settings, "keeper")
    await parts.store.open()
    services = KeeperParts(parts)
    loops = asyncio.create_task(run_loops(services.loops()))
    log.info("keeper", store=settings.store_url.split(":", 1)[0], lease=settings.lease)
    figures = Metrics(lambda: chain(parts.samples(), services.samples()))
    callers = KnowCallers(parts.identity, ask_provider(parts))
    try:
        async with AsyncExitStack() as doors:
            if settings.metrics_port:
                from forestay.apps.metrics_door import metrics_door  # brings an HTTP server, which else no keeper needs

                door = metrics_door(figures, callers, listen=settings.listen, port=settings.metrics_port)
                await doors.enter_async_context(door)
            await until_told()
    finally:
        await stop(loops)
        await parts.store.close()
