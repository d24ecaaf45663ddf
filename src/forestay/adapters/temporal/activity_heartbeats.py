"""Heartbeats of every activity, however long it takes, so that the work of a killed orchestrator is soon reassigned."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from forestay.adapters.temporal.workflows.temporal_runtime import SILENT

EVERY = SILENT.total_seconds() / 10
"""Ten in the time within which one must arrive, so that an orchestrator short of CPU is not taken for dead."""


class ActivityHeartbeats(Interceptor):
    """For an orchestrator's ``interceptors``."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - Temporal's name
        return _HeartbeatInbound(next)


class _HeartbeatInbound(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - Temporal's name
        beating = asyncio.create_task(_heartbeat())
        try:
            return await self.next.execute_activity(input)
        finally:
            beating.cancel()


async def _heartbeat() -> None:
    while True:
        await asyncio.sleep(EVERY)
        activity.heartbeat()
