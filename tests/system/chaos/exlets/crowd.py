"""Many exlets at once: each kill finds some of them in the middle, and every one must end as if nobody had been killed.

One kill after another costs mostly waiting: for the process to be back, for Temporal to give its work to another. Here every primitive is being carried out when
the kill comes. It counts for those only that had begun a step and had not come to their end.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from tests.system.chaos.cases.fault_points import Order, give, passes, struck
from tests.system.chaos.cases.site import answering
from tests.system.chaos.exlets.campaign import PATIENCE, Campaign, Signature, about, differences, drawn
from tests.system.chaos.exlets.primitives import Tried

from forestay.domain.exceptions.incidents.incident import Incident, StepMark, step_record_id
from forestay.domain.exlets.exlet_run import run_name
from forestay.ports.errors import PortError

MOST_ROUNDS = 100


@dataclass(slots=True)
class Crowd:
    """Exlets of all primitives, side by side."""

    campaign: Campaign
    chance: random.Random
    copies: int = 1
    """Exlets of each primitive at once."""
    _known: dict[str, Signature] = field(default_factory=dict)

    async def kill(self, primitives: list[Tried], times: int) -> None:
        """Until each primitive was in the middle of it so many times."""
        report, rounds = self.campaign.report, 0
        found = await self._undisturbed(primitives)
        while lacking := [one for one in primitives if report.kills[one.name] < times]:
            rounds += 1
            if rounds > MOST_ROUNDS + 10 * times:
                report.wrong.append(
                    f"after {rounds} rounds some were not met in the middle: {[o.name for o in lacking]}"
                )
                return
            every = Counter({p: n for p, n in found.items() if _within(p) and any(about(p, one) for one in lacking)})
            ((point, nth),) = drawn(every, self.chance, 1)
            order = Order(uuid4().hex, point, nth)
            began, crashes, wrong = time.monotonic(), len(self.campaign.site.crashes), len(report.wrong)
            try:
                met = await self._round(self._crowd(lacking, len(primitives)), order)
            except TimeoutError as error:
                report.wrong.append(f"{point} {nth}: {error}")
                return
            report.wrong += self.campaign.site.crashes[crashes:]
            for complaint in report.wrong[wrong:]:
                self.campaign.say(f"WRONG: {complaint}")
            took = time.monotonic() - began
            report.slowest = max(report.slowest, took)
            least = min(report.kills[one.name] for one in primitives)
            self.campaign.say(
                f"{took:5.1f} s  {point} {order.nth}: {met} in the middle of it; least {least} of {times}"
            )

    async def _undisturbed(self, primitives: list[Tried]) -> Counter[str]:
        """Twice in peace: what is only passed when everything is new is no step of an exlet."""
        found: Counter[str] = Counter()
        carried_out: list[tuple[Tried, Incident]] = []
        for _ in range(2):
            before = passes(self.campaign.site.points)
            crowd = self._crowd(primitives, len(primitives))
            carried_out = await self._carried_out(crowd, Order(f"none-{uuid4().hex}", "none"))
            found = passes(self.campaign.site.points) - before
        signatures = await asyncio.gather(*(self.campaign.signature(*one) for one in carried_out))
        self._known = {tried.name: end for (tried, _), end in zip(carried_out, signatures, strict=True)}
        return found

    def _crowd(self, lacking: list[Tried], all_: int) -> list[Tried]:
        """Always as many exlets, so that the passes of a point are as many: the fewer lack, the more of each."""
        size = self.copies * all_
        return (lacking * -(-size // len(lacking)))[:size]

    async def _carried_out(self, crowd: list[Tried], order: Order) -> list[tuple[Tried, Incident]]:
        points = self.campaign.site.points
        give(points, Order(f"rest-{order.name}", "none"))
        await answering(self.campaign.site)
        async with asyncio.timeout(PATIENCE):
            incidents = await asyncio.gather(*(self.campaign.prepare(one) for one in crowd))
            give(points, order)
            await asyncio.gather(*(self.campaign.carry_out(one) for one in incidents))
            give(points, Order(f"past-{order.name}", "none"))
        return list(zip(crowd, incidents, strict=True))

    async def _end_of(self, tried: Tried, incident: Incident) -> Signature:
        """How an exlet ended. What it set going takes its time after a kill: one that is not as it should be is looked at again for a while."""
        give_up = time.monotonic() + PATIENCE / 3
        while True:
            with suppress(PortError):
                found = await self.campaign.signature(tried, incident)
                if not differences(found, self._known[tried.name]) or time.monotonic() > give_up:
                    return found
            await asyncio.sleep(1.0)

    async def _round(self, crowd: list[Tried], order: Order) -> int:
        report, points = self.campaign.report, self.campaign.site.points
        carried_out = await self._carried_out(crowd, order)
        found = await asyncio.gather(*(self._end_of(*one) for one in carried_out))
        for (tried, incident), signature in zip(carried_out, found, strict=True):
            report.wrong += [
                f"{tried.name} ({incident.id}), killed at pass {order.nth} of {order.point}: {one}"
                for one in differences(signature, self._known[tried.name])
            ]
        if not struck(points, order):
            report.missed += 1
            return 0
        report.points.add(order.point)
        at = (points / f"struck-{order.name}").stat().st_mtime_ns // 1_000_000
        met = [
            tried.name
            for tried, incident in carried_out
            if about(order.point, tried) and await self._in_the_middle(tried, incident, at)
        ]
        report.kills.update(met)
        report.times += 1
        return len(met)

    async def _in_the_middle(self, tried: Tried, incident: Incident, at: int) -> bool:
        begun = [step_record_id(incident.id, 1, place, StepMark.BEGUN) for place in range(len(tried.steps))]
        steps = await self.campaign.stores.incidents.get_steps(begun)
        handle = (await self.campaign.engine.client()).get_workflow_handle(run_name(incident.id, 1))
        ended = (await handle.describe()).close_time
        assert ended is not None
        return any(one.at < at for one in steps.values()) and ended.timestamp() * 1000 > at


def _within(point: str) -> bool:
    """Where an exlet is only begun to be read, hardly any has begun a step."""
    return "load_exlet" not in point and "initialize_workflow" not in point
