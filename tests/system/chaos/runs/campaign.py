"""Trial after trial: both flows are run, someone is killed at one pass of one point, and the end must be as if nobody had been."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

import httpx
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError
from tests.system.chaos.runs.command_line import say
from tests.system.chaos.runs.end_state import EndState, Trial, look
from tests.system.chaos.runs.fault_points import Order, give, passes, struck
from tests.system.chaos.runs.flows import UNDONE, WELL
from tests.system.chaos.runs.pilot import flying, persist
from tests.system.chaos.runs.site import RunsSite, answering

ANSWER = timedelta(seconds=5)
PATIENCE = 600.0
"""Seconds in which a trial must be over; many, since a busy machine is no fault of the run."""


class Kill(NamedTuple):
    """Who dies, and where."""

    point: str
    nth: int
    temporal: bool = False

    @property
    def who(self) -> str:
        return "temporal" if self.temporal else self.point.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.who} at pass {self.nth} of {self.point}"


@dataclass(slots=True)
class Report:
    """What the trials came to."""

    kills: Counter[str] = field(default_factory=Counter)
    points: set[str] = field(default_factory=set)
    missed: list[Kill] = field(default_factory=list)
    """Passes that did not come in that run."""
    wrong: list[str] = field(default_factory=list)
    extra_attempts: int = 0
    undisturbed: float = 0.0
    slowest: float = 0.0
    slowest_kill: str = ""


@dataclass(slots=True)
class Campaign:
    """On one site."""

    site: RunsSite
    known: EndState | None = None
    """The end state of the trial in which nobody was hurt."""
    report: Report = field(default_factory=Report)

    async def undisturbed(self) -> Counter[str]:
        """Run both flows once in peace; the points that they pass, and how often."""
        await self._trial(
            Order(f"warm-{uuid4().hex[:8]}", "none")
        )  # what is only passed when everything is new is no step of a run
        before = passes(self.site.points)
        began = time.monotonic()
        trial = await self._trial(Order(f"none-{uuid4().hex[:8]}", "none"))
        self.report.undisturbed = time.monotonic() - began
        result = passes(self.site.points) - before
        self.known, wrong = await self._look(trial)
        assert not wrong, wrong
        return result

    async def kill(self, kill: Kill) -> bool:
        """One trial; False if the pass did not come."""
        order = Order(uuid4().hex, kill.point, kill.nth, await self.site.temporal_pid() if kill.temporal else 0)
        began = time.monotonic()
        crashes = len(self.site.crashes)
        try:
            trial = await self._trial(order)
        except TimeoutError as error:
            self.report.wrong.append(f"{kill}: {error}")
            return True
        took = time.monotonic() - began
        if not struck(self.site.points, order):
            self.report.missed.append(kill)
            return False
        state, wrong = await self._look(trial)
        assert self.known is not None
        wrong += state.differences(self.known) + self.site.crashes[crashes:]
        self.report.wrong += [f"{kill}: {name}" for name in wrong]
        self.report.kills[kill.who] += 1
        self.report.points.add(kill.point)
        self.report.extra_attempts += len(trial.effects) - len({effect.job for effect in trial.effects})
        if took > self.report.slowest:
            self.report.slowest, self.report.slowest_kill = took, str(kill)
        say(f"{took:5.1f} s  {kill}{'' if not wrong else '  WRONG: ' + '; '.join(wrong)}")
        return True

    async def _trial(self, order: Order) -> Trial:
        give(self.site.points, order)
        await answering(self.site)
        async with asyncio.timeout(PATIENCE), self.site.person() as person:
            async with flying(self.site.url, self.site.token("enrol")) as pilot:
                well, undone = await asyncio.gather(
                    _start(person, WELL, f"well-{order.name}"), _start(person, UNDONE, f"undone-{order.name}")
                )
                await asyncio.gather(self._ended(well), self._ended(undone))
            return Trial(well, undone, pilot.effects, pilot.results)

    async def _ended(self, run: str) -> None:
        """Wait for the end of a run, by asking Temporal: it may be dead for a while."""
        while True:
            with suppress(RPCError, RuntimeError):
                handle = (await self.site.client()).get_workflow_handle(run)
                if (await handle.describe(rpc_timeout=ANSWER)).status is not WorkflowExecutionStatus.RUNNING:
                    return
            await asyncio.sleep(0.2)

    async def _look(self, trial: Trial) -> tuple[EndState, list[str]]:
        await answering(self.site)
        async with self.site.person() as person:
            return await look(person, await self.site.client(), trial)


async def _start(person: httpx.AsyncClient, text: str, key: str) -> str:
    version = (await persist(person, "POST", "/v1/flows", json={"text": text}))["version"]
    started = await persist(person, "POST", "/v1/runs", json={"flow": version}, headers={"Idempotency-Key": key})
    run: str = started["id"]
    return run


def every(counts: Counter[str], seed: int, rounds: int, wanted: Sequence[str] = ()) -> Iterator[Kill]:
    """Each point so many times, at passes drawn by the seed; Temporal too dies once at each of them."""
    chance = random.Random(seed)
    for point in sorted(counts):
        if wanted and not any(part in point for part in wanted):
            continue
        often = counts[point]
        for nth in _drawn(chance, often, rounds):
            yield Kill(point, nth)
        yield Kill(point, chance.randint(1, often), temporal=True)


def _drawn(chance: random.Random, often: int, rounds: int) -> Iterable[int]:
    return sorted(chance.sample(range(1, often + 1), min(often, rounds)))
