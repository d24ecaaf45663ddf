"""The windows of the claim desk, on the simulated store in virtual time: what fits is found, whatever stands before it."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from tests.system.simulation.server import SimClock, SimIds
from tests.system.simulation.store import Client, Cluster
from tests.system.simulation.virtual_loop import Actor, VirtualLoop

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.resources import Resources, resource_class
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.claim_settings import ClaimSettings
from forestay.services.scheduling.job_eligibility import Suspensions
from forestay.services.shared.checked_writer import CheckedWriter

LARGE, SMALL = Resources(cpus=4), Resources(cpus=3)


class Suspension:
    """Of all jobs, while it is closed."""

    closed = True

    def suspended(self, _document: JobDocument) -> bool:
        return self.closed


class Desk:
    """A claim desk on a store without failures."""

    def __init__(self, settings: ClaimSettings, suspensions: Suspensions | None = None) -> None:
        self.loop = VirtualLoop(Random(1))  # type: ignore[abstract]
        self.actor = Actor(self.loop, "server")
        self.store = Client(Cluster(Actor(self.loop, "store"), Random(2), Counter(), fields={}))
        clock = SimClock(self.loop, Random(3))
        self.clock = clock
        self.claims = ClaimDispatcher(
            self.store, CheckedWriter(self.store), clock, SimIds(Random(4)), settings, suspensions=suspensions
        )
        self.actor.spawn(self.claims.run())

    async def put(self, *needs: Resources) -> list[str]:
        """Store jobs as another server does: this one is not told."""
        specification = Specification("s", "lab", "sim", ("true",))
        now = self.clock.now()
        made = [
            new_job(
                Submission(specification, "ann", index=place, resources=resources),
                job=f"j{now}-{place}",
                now=now,
                by="ann",
            )
            for place, resources in enumerate(needs)
        ]
        await self.store.write([DocumentChange(document, None) for document in made])
        await asyncio.sleep(2.0)
        return [document.id for document in made]

    async def claim(self, free: Resources, *, most: int = 1, wait: float = 30.0) -> list[str]:
        work = self.claims.claim(ClaimRequest(pilot="p", host="h", tenant="lab", free=free, most=most), wait=wait)
        granted = await self.actor.spawn(work)
        return [entry.document.id for entry in granted]


def test_a_job_that_fits_is_found_behind_a_page_of_those_that_do_not() -> None:
    assert resource_class(LARGE) == resource_class(SMALL)
    desk = Desk(ClaimSettings(buffer=6, low_water=3, look=4))

    async def story() -> list[str]:
        *_, small = await desk.put(*[LARGE] * 70, SMALL)
        assert await desk.claim(SMALL) == [small]
        return await desk.claim(LARGE, most=70)

    # Those that were passed over are not lost to whoever can run them.
    assert desk.loop.run(story())


def test_a_job_that_fits_is_found_when_it_comes_after_those_that_do_not() -> None:
    desk = Desk(ClaimSettings(buffer=6, low_water=3, look=4))

    async def story() -> None:
        large = await desk.put(LARGE, LARGE)
        waiting = desk.actor.spawn(desk.claim(SMALL))
        await asyncio.sleep(5.0)
        assert not waiting.done()
        small = await desk.put(SMALL)
        assert await waiting == small
        assert sorted([*await desk.claim(LARGE), *await desk.claim(LARGE)]) == large

    desk.loop.run(story())


def test_a_lane_behind_a_suspension_is_found_as_soon_as_it_opens_though_another_lane_has_work_for_everyone() -> None:
    tiny = Resources(cpus=1)
    assert resource_class(tiny) != resource_class(LARGE), "two lanes"

    def opened_at(moment: float) -> float:
        suspension = Suspension()
        desk = Desk(ClaimSettings(), suspension)
        identifiers: list[str] = []

        async def pilot(name: str) -> None:
            while True:
                asked = desk.claims.claim(
                    ClaimRequest(pilot=name, host="h", tenant="lab", free=LARGE, most=1), wait=0.5
                )
                identifiers.extend(entry.document.id for entry in await desk.actor.spawn(asked))
                await asyncio.sleep(0.1)

        async def story() -> float:
            (small,) = await desk.put(tiny)
            pilots = [desk.actor.spawn(pilot(f"p{number}")) for number in range(4)]
            await desk.put(*[LARGE] * 2000)
            await asyncio.sleep(moment)
            assert not identifiers
            suspension.closed, began = False, desk.clock.monotonic()
            desk.claims.signal.look_anew()
            while small not in identifiers:  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.01)
            for task in pilots:
                task.cancel()
            return desk.clock.monotonic() - began

        return float(desk.loop.run(story()))

    # The small job's lane is forgotten for a moment now and then while nobody may have it.
    assert max(opened_at(5.0 + tenths / 10) for tenths in range(0, 20, 2)) < 0.5
