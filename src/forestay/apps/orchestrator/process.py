"""The orchestrator process: runs and shards on Temporal. Any number may run; their state is in Temporal and the store."""

from __future__ import annotations

import asyncio

import structlog

from forestay.apps.compose.components import make_components
from forestay.apps.compose.loops import run_loops, stop, until_stopped
from forestay.apps.compose.orchestrator import OrchestratorComponents
from forestay.apps.config.settings import Settings

log = structlog.get_logger()


async def run_orchestrator(settings: Settings) -> None:
    """Run one orchestrator until it is told to stop."""
    components = make_components(settings, "orchestrator")
    services = OrchestratorComponents(components)
    await components.store.open()
    loops = asyncio.create_task(run_loops(services.loops()))
    log.info("orchestrator", store=settings.store_url.split(":", 1)[0], temporal=settings.temporal)
    try:
        await until_stopped()
    finally:
        await stop(loops)
        await components.store.close()
