"""The people of the simulated world: a client who submits, an operator who interferes, a consumer who reads outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.system.simulation.link import Handler, LinkLost
from tests.system.simulation.virtual_loop import Actor

from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, Specification, WhenExhausted
from forestay.domain.jobs.submission import Submission
from forestay.services.shared.checked_writer import WriteApplied

if TYPE_CHECKING:
    from tests.system.simulation.server import SimServer
    from tests.system.simulation.world import World


class People:
    """All of them in one process of their own; each call goes to some server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("people")
        self.actor = Actor(world.loop, "people")
        self.submitting = 0
        self.jobs: list[str] = []
        self.kept_on_hold: set[str] = set()
        self.interfering: list[asyncio.Task[None]] = []

    async def _call(self, handler: Handler) -> Any:
        server = self.world.servers[self.rng.randrange(len(self.world.servers))]
        return await self.world.link.call(self.actor, server, handler, patience=4.0)

    # -- the client --------------------------------------------------------------------------------------------

    def submit(self, key: str, count: int) -> None:
        self.submitting += 1
        self.world.auditor.asked[key] = count
        self.actor.spawn(self._submit(key, count))

    async def _submit(self, key: str, count: int) -> None:
        policy = RetryPolicy(self.rng.randint(1, 4), self.rng.randint(0, 1), self.rng.choice(list(WhenExhausted)))
        specification = Specification(f"spec-{key}", "lab", "sim", ("true",), retry=policy)
        held = self.rng.random() < 0.05
        jobs = [
            Submission(
                specification,
                owner=self.rng.choice(("ann", "bob")),
                priority=self.rng.choice((0, 0, 5)),
                labels={"key": key},
                resources=Resources(cpus=self.rng.choice((1, 1, 2, 3, 4))),
                callback="https://example.org/done" if self.rng.random() < 0.3 else None,
                held=held,
            )
            for _ in range(count)
        ]
        repeats = 1 + (self.rng.random() < 0.2)
        while repeats:
            try:
                accepted = await self._call(lambda server: server.accept(jobs, key))
            except LinkLost:
                await asyncio.sleep(0.3)
                continue
            repeats -= 1
            names = [entry.id for entry in accepted]
            self.world.auditor.submitted(key, names)
            if self.jobs[-len(names) :] != names:
                self.jobs += names
            await asyncio.sleep(3.0 * self.rng.random())
        self.submitting -= 1

    # -- the operator ------------------------------------------------------------------------------------------

    def interfere(self) -> None:
        if self.jobs:
            self.interfering.append(self.actor.spawn(self._interfere(self.rng.choice(self.jobs))))

    async def _interfere(self, job: str) -> None:
        what = self.rng.choice(("cancel", "hold", "hold", "release", "release", "force", "retry"))
        tally = self.world.tally
        try:
            stored = await self._call(lambda server: server.look_at(job))
            if stored is None:
                return
            seen = stored.document
            answer: object = None
            if what == "cancel":
                answer = await self._call(lambda server: server.steer.cancel(job, by="op"))
            elif what == "hold":
                answer = await self._call(lambda server: server.steer.hold(job, holder="op", by="op"))
                await asyncio.sleep(6.0 * self.rng.random())
                if self.rng.random() < 0.1:
                    self.kept_on_hold.add(job)
                elif self.rng.random() < 0.8:
                    await self._call(lambda server: server.steer.let_go(job, holder="op", by="op"))
            elif what == "release" and seen.claim is not None:
                claim = seen.claim.id
                answer = await self._call(
                    lambda server: server.steer.release(job, attempt=seen.attempt, claim=claim, by="op", reason="x")
                )
            elif what == "force" and seen.attempt > 0:
                to = self.rng.choice((State.FORCED_COMPLETE, State.FAILED))
                answer = await self._call(
                    lambda server: server.steer.force(job, to=to, expected=seen.token, by="op", reason="x")
                )
            elif what == "retry" and seen.state is State.FAULTED:
                answer = await self._call(lambda server: server.steer.retry(job, by="op"))
            tally[f"operator: {what}"] += isinstance(answer, WriteApplied)
        except LinkLost:
            return

    async def let_all_go(self) -> None:
        """In quiet time nobody interferes any more, and nothing stays on hold but what was meant to."""
        await asyncio.gather(*self.interfering)
        for job in self.jobs:
            if job not in self.kept_on_hold:
                await self._let_go(job)

    async def _let_go(self, job: str) -> None:
        for _ in range(5):
            try:
                stored = await self._call(lambda server: server.look_at(job))
                if stored is None or not stored.document.holders:
                    break
                holder: str = stored.document.holders[0]
                await self._call(partial(_free, job=job, holder=holder))
            except LinkLost:
                await asyncio.sleep(0.2)

    # -- the consumer ------------------------------------------------------------------------------------------

    def consume(self, job: str | None = None) -> None:
        if self.jobs:
            self.actor.spawn(self._consume(job or self.rng.choice(self.jobs)))

    def wait_for(self, job: str) -> None:
        """Someone waits for this very job and looks as soon as it may have ended."""
        if self.rng.random() < 0.3:
            self.actor.later(0.6 * self.rng.random() ** 2, self.consume, job)

    async def _consume(self, job: str) -> None:
        try:
            winner = await self._call(lambda server: server.read_outputs(job))
        except LinkLost:
            return
        if winner is not None and winner.manifest is not None:
            self.world.auditor.show(job, winner.manifest.path)


def _free(server: SimServer, *, job: str, holder: str) -> Coroutine[Any, Any, Any]:
    return server.steer.let_go(job, holder=holder, by="op")
