"""Trial after trial: flows are run, someone is killed at one pass of one point, and the end must be as if nobody had been."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple, Protocol
from uuid import uuid4

import httpx
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError
from tests.system.chaos.runs.command_line import say
from tests.system.chaos.runs.end_state import EndState, Trial, both, look
from tests.system.chaos.runs.fault_points import Order, give, passes, struck
from tests.system.chaos.runs.flows import UNDOING, UNDONE, WELL, Fates
from tests.system.chaos.runs.pilot import Facts, Pilot, flying, persist
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


class Work(Protocol):
    """What is run in each trial."""

    def facts(self) -> Facts:
        """How its jobs end, in one trial."""
        ...

    async def carry_out(self, stage: Stage) -> Trial:
        """Start the runs, do what people do meanwhile, and wait until they have ended."""
        ...


@dataclass(slots=True)
class Stage:
    """Where one trial takes place."""

    site: RunsSite
    key: str
    """The trial's own, in names that only it uses."""
    person: httpx.AsyncClient
    pilot: Pilot

    async def start(self, text: str, name: str, **params: object) -> str:
        """Start a run, once however often it is asked for."""
        version = (await persist(self.person, "POST", "/v1/flows", json={"text": text}))["version"]
        return await self._start(version, name, params)

    async def start_named(self, name: str, **params: object) -> str:
        """Start a run of a Python flow of the site's folder, once."""
        return await self._start(name, name, params)

    async def _start(self, flow: str, name: str, params: Mapping[str, object]) -> str:
        body = {"flow": flow, "params": params}
        headers = {"Idempotency-Key": f"{name}-{self.key}"}
        return str((await persist(self.person, "POST", "/v1/runs", json=body, headers=headers))["id"])

    async def ended(self, run: str) -> None:
        """Wait for the end of a run, by asking Temporal: it may be dead for a while."""
        while True:
            with suppress(RPCError, RuntimeError):
                handle = (await self.site.client()).get_workflow_handle(run)
                if (await handle.describe(rpc_timeout=ANSWER)).status is not WorkflowExecutionStatus.RUNNING:
                    return
            await asyncio.sleep(0.2)

    def trial(
        self, runs: Mapping[str, str], undoing: Sequence[str] = (), ends: Mapping[str, int] | None = None
    ) -> Trial:
        return Trial(runs, self.pilot.effects, self.pilot.results, undoing, ends or {})


class BothFlows:
    """The flow with every pattern that ends well, and the one that fails late and is undone."""

    def facts(self) -> Facts:
        return Fates().facts

    async def carry_out(self, stage: Stage) -> Trial:
        well, undone = await asyncio.gather(stage.start(WELL, "well"), stage.start(UNDONE, "undone"))
        await asyncio.gather(stage.ended(well), stage.ended(undone))
        return stage.trial(both(well, undone), UNDOING)


@dataclass(slots=True)
class Campaign:
    """On one site."""

    site: RunsSite
    work: Work = field(default_factory=BothFlows)
    known: EndState | None = None
    """The end state of the trial in which nobody was hurt."""
    report: Report = field(default_factory=Report)

    async def undisturbed(self) -> Counter[str]:
        """Run the flows once in peace; the points that they pass, and how often."""
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
        async with (
            asyncio.timeout(PATIENCE),
            self.site.person() as person,
            flying(self.site.url, self.site.token("enrol"), self.work.facts()) as pilot,
        ):
            return await self.work.carry_out(Stage(self.site, order.name, person, pilot))

    async def _look(self, trial: Trial) -> tuple[EndState, list[str]]:
        await answering(self.site)
        async with self.site.person() as person:
            return await look(person, await self.site.client(), trial)


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
