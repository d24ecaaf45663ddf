"""Passes the orders of gates on: every case of the flow that had begun by then is told.

A case takes a verb once, by its id; so an order may be passed on again from the beginning, by anyone, when whoever did it has died. The gate stays closed until
a whole look at the engine's list finds nobody who was not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forestay.domain.flows.events import Verb
from forestay.ports.errors import NotFound, PortError
from forestay.ports.flows.flow_engine import CaseQuery, FlowEngine
from forestay.services.flows.flow_suspensions import FlowSuspensions, TenantSuspension

PAGE = 1000
AT_ONCE = 64
"""Cases that are told at the same time."""


@dataclass(slots=True)
class SuspensionBroadcast:
    """The service; any number of keepers may run it."""

    gates: FlowSuspensions
    engine: FlowEngine
    every: float = 1.0
    settle: float = 2.0
    """Seconds after which the engine surely lists a case that had begun."""
    troubled: Callable[[str], None] = lambda _text: None
    told: int = 0
    _under_way: dict[tuple[str, str], asyncio.Task[None]] = field(default_factory=dict)

    async def run(self) -> None:
        try:
            while True:
                try:
                    for one in await self.gates.ordered():
                        self._begin(one)
                except PortError as error:
                    self.troubled(str(error))
                await asyncio.sleep(self.every)
        finally:
            for task in self._under_way.values():
                task.cancel()

    def _begin(self, one: TenantSuspension) -> None:
        key = (one.tenant, one.gate.flow)
        if key not in self._under_way:
            task = asyncio.create_task(self._pass_on(one))
            self._under_way[key] = task
            task.add_done_callback(lambda _task: self._under_way.pop(key, None))

    async def _pass_on(self, one: TenantSuspension) -> None:
        try:
            for verb in one.gate.orders:
                await self._tell_all(one.tenant, one.gate.flow, verb)
                await self.gates.passed_on(one.tenant, one.gate.flow, verb.id)
        except PortError as error:
            self.troubled(str(error))  # begun again at the next look

    async def _tell_all(self, tenant: str, flow: str, verb: Verb) -> None:
        """Until a look that began long enough after the order finds nobody new."""
        told: set[str] = set()
        await self._tell_listed(tenant, flow, verb, told)
        while True:
            await asyncio.sleep(self.settle)
            before = len(told)
            await self._tell_listed(tenant, flow, verb, told)
            if len(told) == before:
                return

    async def _tell_listed(self, tenant: str, flow: str, verb: Verb, told: set[str]) -> None:
        cursor: str | None = None
        while True:
            page = await self.engine.find(CaseQuery(tenant, version=flow, open=True), limit=PAGE, cursor=cursor)
            fresh = [one.case for one in page.cases if one.case not in told]
            await self._tell(fresh, verb)
            told.update(fresh)
            cursor = page.cursor
            if cursor is None:
                return

    async def _tell(self, cases: Sequence[str], verb: Verb) -> None:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(case: str) -> PortError | None:
            async with turns:
                try:
                    await self.engine.tell_case(case, [verb])
                except NotFound:
                    return None  # it has ended
                except PortError as error:
                    return error
            self.told += 1
            return None

        for trouble in await asyncio.gather(*(one(case) for case in cases)):
            if trouble is not None:
                raise trouble
