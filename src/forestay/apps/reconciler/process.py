"""The reconciler process: orphans, run-time alerts, callbacks. Any number may run."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import chain

import structlog

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.compose.components import make_components
from forestay.apps.compose.identity import build_oidc_provider
from forestay.apps.compose.loops import run_loops, stop, until_stopped
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.apps.config.settings import Settings
from forestay.services.operations.authenticator import Authenticator
from forestay.services.operations.token_revocations import TokenRevocations

log = structlog.get_logger()


async def run_reconciler(settings: Settings) -> None:
    """Run one reconciler until it is told to stop."""
    components = make_components(settings, "reconciler")
    await components.store.open()
    services = ReconcilerComponents(components)
    revocations = TokenRevocations(components.store, components.clock)
    loops = asyncio.create_task(run_loops(services.loops() | {"token revocations": revocations.run}))
    log.info("reconciler", store=settings.store_url.split(":", 1)[0], lease=settings.lease)
    figures = Metrics(lambda: chain(components.samples(), services.samples()))
    callers = Authenticator(components.identity, revocations, build_oidc_provider(components))
    try:
        async with AsyncExitStack() as doors:
            if settings.metrics_port:
                from forestay.apps.metrics_endpoint import (
                    metrics_endpoint,  # imports an HTTP server, which a reconciler does not need otherwise
                )

                door = metrics_endpoint(figures, callers, listen=settings.listen, port=settings.metrics_port)
                await doors.enter_async_context(door)
            await until_stopped()
    finally:
        await stop(loops)
        await components.store.close()
