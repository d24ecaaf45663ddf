"""Jobs with an image go to pilots that can run it; where there is none, they end instead of waiting for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.contract.examples import pilot

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.scheduling.candidate_buffers import CandidateSignal
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.container_fleet import ContainerFleet
from forestay.services.shared.checked_writer import CheckedWriter


def job(container: str) -> JobDocument:
    spec = Specification("s", "t", "noop", ("true",), container=container)
    return new_job(Submission(spec, "ann"), job=RandomIds().job(), now=SystemClock().now(), by="ann")


@asynccontextmanager
async def desk_with(
    folder: Path, jobs: list[JobDocument], fleet: dict[str, list[str] | None]
) -> AsyncIterator[ClaimDispatcher]:
    store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    pilots = SqlPilotStore(store.database)
    for name, runtimes in fleet.items():
        extra = {} if runtimes is None else {"runtimes": runtimes}
        await pilots.put_pilot(pilot(name, tenant="t", host=name, extra=extra), None)
    await store.write([DocumentChange(document, None) for document in jobs])
    clock, signal = SystemClock(), CandidateSignal()
    containers = ContainerFleet(pilots, clock, signal)
    desk = ClaimDispatcher(store, CheckedWriter(store), clock, RandomIds(), signal=signal, containers=containers)
    desk.assign_hash_slots(frozenset(range(SLOTS)))
    running = asyncio.create_task(desk.run())
    try:
        yield desk
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def take(desk: ClaimDispatcher, name: str, runtimes: list[str] | None, *, wait: float = 20.0) -> list[str]:
    known = None if runtimes is None else frozenset(runtimes)
    free = Resources(cpus=1)
    granted = await desk.claim(
        ClaimRequest(pilot=name, host=name, tenant="t", free=free, most=1, runtimes=known), wait=wait
    )
    return [stored.document.id for stored in granted]


async def test_a_job_waits_for_a_pilot_that_can_run_its_image(tmp_path: Path) -> None:
    contained, plain = job("debian:12"), job("")
    fleet: dict[str, list[str] | None] = {"plain": [], "unpacking": ["bubblewrap"], "able": ["podman"]}
    async with desk_with(tmp_path, [contained, plain], fleet) as desk:
        assert await take(desk, "plain", []) == [plain.id]
        assert await take(desk, "unpacking", ["bubblewrap"], wait=0.5) == []
        assert await take(desk, "able", ["podman"]) == [contained.id]


async def test_where_nobody_can_anyone_takes_it_and_says_so(tmp_path: Path) -> None:
    contained = job("debian:12")
    async with desk_with(tmp_path, [contained], {"plain": [], "unpacking": ["bubblewrap"]}) as desk:
        assert await take(desk, "plain", []) == [contained.id]


async def test_pilots_of_the_previous_release_may_be_able(tmp_path: Path) -> None:
    contained = job("debian:12")
    async with desk_with(tmp_path, [contained], {"plain": [], "older": None}) as desk:
        assert await take(desk, "plain", [], wait=0.5) == []
        assert await take(desk, "older", None) == [contained.id]
