"""Many playbooks at once: each kill finds some of them in the middle, and every one must end as if nobody had been killed.

One kill after another costs mostly waiting: for the process to be back, for Temporal to give its work to another. Here every action is being carried out when
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

from tests.system.chaos.playbooks.actions import Tried
from tests.system.chaos.playbooks.campaign import PATIENCE, Campaign, Signature, about, differences, drawn
from tests.system.chaos.runs.fault_points import Order, give, passes, struck
from tests.system.chaos.runs.site import answering

from forestay.domain.exceptions.incidents.incident import Incident, StepMark, step_record_id
from forestay.domain.playbooks.playbook_run import run_name
from forestay.ports.errors import PortError

MOST_ROUNDS = 100


@dataclass(slots=True)
class Crowd:
    """Playbooks of all actions, side by side."""

    campaign: Campaign
    chance: random.Random
    copies: int = 1
    """Playbooks of each action at once."""
    _known: dict[str, Signature] = field(default_factory=dict)

    async def kill(self, actions: list[Tried], times: int) -> None:
        """Until each action was in the middle of it so many times."""
        report, rounds = self.campaign.report, 0
        counts = await self._undisturbed(actions)
        while lacking := [action for action in actions if report.kills[action.name] < times]:
            rounds += 1
            if rounds > MOST_ROUNDS + 10 * times:
                report.wrong.append(
                    f"after {rounds} rounds some were not met in the middle: {[o.name for o in lacking]}"
                )
                return
            every = Counter(
                {p: n for p, n in counts.items() if _within(p) and any(about(p, tried) for tried in lacking)}
            )
            ((point, nth),) = drawn(every, self.chance, 1)
            order = Order(uuid4().hex, point, nth)
            began, crashes, wrong = time.monotonic(), len(self.campaign.site.crashes), len(report.wrong)
            try:
                met = await self._round(self._crowd(lacking, len(actions)), order)
            except TimeoutError as error:
                report.wrong.append(f"{point} {nth}: {error}")
                return
            report.wrong += self.campaign.site.crashes[crashes:]
            for complaint in report.wrong[wrong:]:
                self.campaign.say(f"WRONG: {complaint}")
            took = time.monotonic() - began
            report.slowest = max(report.slowest, took)
            least = min(report.kills[action.name] for action in actions)
            self.campaign.say(
                f"{took:5.1f} s  {point} {order.nth}: {met} in the middle of it; least {least} of {times}"
            )

    async def _undisturbed(self, actions: list[Tried]) -> Counter[str]:
        """Twice in peace: what is only passed when everything is new is no step of a playbook."""
        result: Counter[str] = Counter()
        carried_out: list[tuple[Tried, Incident]] = []
        for _ in range(2):
            before = passes(self.campaign.site.points)
            crowd = self._crowd(actions, len(actions))
            carried_out = await self._carried_out(crowd, Order(f"none-{uuid4().hex}", "none"))
            result = passes(self.campaign.site.points) - before
        signatures = await asyncio.gather(*(self.campaign.signature(*pair) for pair in carried_out))
        self._known = {tried.name: end for (tried, _), end in zip(carried_out, signatures, strict=True)}
        return result

    def _crowd(self, lacking: list[Tried], all_: int) -> list[Tried]:
        """Always as many playbooks, so that the passes of a point are as many: the fewer lack, the more of each."""
        size = self.copies * all_
        return (lacking * -(-size // len(lacking)))[:size]

    async def _carried_out(self, crowd: list[Tried], order: Order) -> list[tuple[Tried, Incident]]:
        points = self.campaign.site.points
        give(points, Order(f"rest-{order.name}", "none"))
        await answering(self.campaign.site)
        async with asyncio.timeout(PATIENCE):
            incidents = await asyncio.gather(*(self.campaign.prepare(tried) for tried in crowd))
            give(points, order)
            await asyncio.gather(*(self.campaign.carry_out(incident) for incident in incidents))
            give(points, Order(f"past-{order.name}", "none"))
        return list(zip(crowd, incidents, strict=True))

    async def _end_of(self, tried: Tried, incident: Incident) -> Signature:
        """How a playbook ended. What it set going takes its time after a kill: one that is not as it should be is looked at again for a while."""
        give_up = time.monotonic() + PATIENCE / 3
        while True:
            with suppress(PortError):
                signature = await self.campaign.signature(tried, incident)
                if not differences(signature, self._known[tried.name]) or time.monotonic() > give_up:
                    return signature
            await asyncio.sleep(1.0)

    async def _round(self, crowd: list[Tried], order: Order) -> int:
        report, points = self.campaign.report, self.campaign.site.points
        carried_out = await self._carried_out(crowd, order)
        results = await asyncio.gather(*(self._end_of(*pair) for pair in carried_out))
        for (tried, incident), signature in zip(carried_out, results, strict=True):
            report.wrong += [
                f"{tried.name} ({incident.id}), killed at pass {order.nth} of {order.point}: {difference}"
                for difference in differences(signature, self._known[tried.name])
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
        return any(step.at < at for step in steps.values()) and ended.timestamp() * 1000 > at


def _within(point: str) -> bool:
    """Where a playbook is only begun to be read, hardly any has begun a step."""
    return "load_playbook" not in point and "initialize_workflow" not in point
