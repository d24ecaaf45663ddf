"""Broadcasts suspension commands to every run of the flow that had started by then.

A run executes a verb once, by its id; so any process may pass an order on again from the beginning when the one that did so has died. The flow stays
suspended until a complete pass over the engine's list finds no run that was not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forestay.domain.flows.events import Verb
from forestay.ports.errors import NotFound, PortError
from forestay.ports.flows.flow_engine import FlowEngine, RunQuery
from forestay.services.flows.flow_suspensions import FlowSuspensions, TenantSuspension

PAGE = 1000
AT_ONCE = 64
"""Runs that get the command at the same time."""


@dataclass(slots=True)
class SuspensionBroadcast:
    """The service; any number of reconcilers may run it."""

    suspensions: FlowSuspensions
    engine: FlowEngine
    every: float = 1.0
    settle: float = 2.0
    """Seconds after which the engine is certain to list a run that had begun."""
    troubled: Callable[[str], None] = lambda _text: None
    sent: int = 0
    _under_way: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        try:
            while True:
                try:
                    for suspension in await self.suspensions.ordered():
                        self._begin(suspension)
                except PortError as error:
                    self.troubled(str(error))
                await asyncio.sleep(self.every)
        finally:
            for task in self._under_way.values():
                task.cancel()

    def _begin(self, tenant_suspension: TenantSuspension) -> None:
        key = (tenant_suspension.tenant, tenant_suspension.suspension.flow)
        if key not in self._under_way:
            task = asyncio.create_task(self._pass_on(tenant_suspension))
            self._under_way[key] = task
            task.add_done_callback(lambda _task: self._under_way.pop(key, None))

    async def _pass_on(self, tenant_suspension: TenantSuspension) -> None:
        try:
            for verb in tenant_suspension.suspension.orders:
                await self._tell_all(tenant_suspension.tenant, tenant_suspension.suspension.flow, verb)
                await self.suspensions.passed_on(tenant_suspension.tenant, tenant_suspension.suspension.flow, verb.id)
        except PortError as error:
            self.troubled(str(error))  # started again at the next poll

    async def _tell_all(self, tenant: str, flow: str, verb: Verb) -> None:
        """Send the verb to all runs, until a pass that began long enough after the order finds no new run."""
        reported: set[str] = set()
        await self._tell_listed(tenant, flow, verb, reported)
        while True:
            await asyncio.sleep(self.settle)
            before = len(reported)
            await self._tell_listed(tenant, flow, verb, reported)
            if len(reported) == before:
                return

    async def _tell_listed(self, tenant: str, flow: str, verb: Verb, reported: set[str]) -> None:
        cursor: str | None = None
        while True:
            page = await self.engine.find(RunQuery(tenant, version=flow, open=True), limit=PAGE, cursor=cursor)
            fresh = [summary.run for summary in page.runs if summary.run not in reported]
            await self._tell(fresh, verb)
            reported.update(fresh)
            cursor = page.cursor
            if cursor is None:
                return

    async def _tell(self, runs: Sequence[str], verb: Verb) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(run: str) -> PortError | None:
            async with turns:
                try:
                    await self.engine.tell_run(run, [verb])
                except NotFound:
                    return None  # it has ended
                except PortError as error:
                    return error
            self.sent += 1
            return None

        for trouble in await asyncio.gather(*(one(run) for run in runs)):
            if trouble is not None:
                raise trouble
