"""The keeper process: orphans, run-time alerts, callbacks. Any number may run."""

from __future__ import annotations

import asyncio
from itertools import chain

import structlog

from holdfast.adapters.prometheus.metrics import Metrics
from holdfast.apps.metrics_door import metrics_door
from holdfast.apps.settings import Settings
from holdfast.apps.wiring.identity import ask_provider
from holdfast.apps.wiring.keeper import KeeperParts
from holdfast.apps.wiring.loops import run_loops, stop, until_told
from holdfast.apps.wiring.parts import make_parts
from holdfast.services.know_callers import KnowCallers

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
        async with metrics_door(figures, callers, listen=settings.listen, port=settings.metrics_port):
            await until_told()
    finally:
        await stop(loops)
        await parts.store.close()
