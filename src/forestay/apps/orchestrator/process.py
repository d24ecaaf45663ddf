"""The worker process: cases and shards on Temporal. Any number may run; what they know is in Temporal and the store."""

from __future__ import annotations

import asyncio

import structlog

from forestay.apps.compose.loops import run_loops, stop, until_told
from forestay.apps.compose.parts import make_parts
from forestay.apps.compose.worker import WorkerParts
from forestay.apps.config.settings import Settings

log = structlog.get_logger()


async def work(settings: Settings) -> None:
    """Run one worker until it is told to stop."""
    parts = make_parts(settings, "worker")
    services = WorkerParts(parts)
    await parts.store.open()
    loops = asyncio.create_task(run_loops(services.loops()))
    log.info("worker", store=settings.store_url.split(":", 1)[0], temporal=settings.temporal)
    try:
        await until_told()
    finally:
        await stop(loops)
        await parts.store.close()
