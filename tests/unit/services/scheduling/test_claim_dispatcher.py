"""The claim desk on a real SQLite store: who gets which job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.shared.checked_writer import CheckedWriter

SPEC = Specification("s", "t", "noop", ("true",))


def job(owner: str = "ann", *, priority: int = 0, cpus: int = 1) -> JobDocument:
    asked = Submission(SPEC, owner, priority=priority, resources=Resources(cpus=cpus))
    return new_job(asked, job=RandomIds().job(), now=SystemClock().now(), by=owner)


@asynccontextmanager
async def desk_with(folder: Path, jobs: list[JobDocument]) -> AsyncIterator[ClaimDispatcher]:
    store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    await store.write([DocumentChange(job, None) for job in jobs])
    desk = ClaimDispatcher(store, CheckedWriter(store), SystemClock(), RandomIds())
    desk.assign_hash_slots(frozenset(range(SLOTS)))
    running = asyncio.create_task(desk.run())
    try:
        yield desk
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


async def take(desk: ClaimDispatcher, *, cpus: int = 1, most: int = 1) -> list[JobDocument]:
    free = Resources(cpus=cpus)
    got = await desk.claim(ClaimRequest(pilot="p", host="h", tenant="t", free=free, most=most), wait=20)
    return [stored.document for stored in got]


async def test_an_urgent_job_that_does_not_fit_keeps_nobody_from_one_that_does(tmp_path: Path) -> None:
    # Four CPUs fall in the class of three or four: only the job itself shows that three do not do.
    urgent, plain = job(priority=9, cpus=4), job()
    async with desk_with(tmp_path, [urgent, plain]) as desk:
        assert [document.id for document in await take(desk, cpus=3)] == [plain.id]
        assert [document.id for document in await take(desk, cpus=4)] == [urgent.id]


async def test_the_more_urgent_job_goes_first(tmp_path: Path) -> None:
    jobs = [job(priority=priority) for priority in (0, 5, -3, 7)]
    async with desk_with(tmp_path, jobs) as desk:
        assert [(await take(desk))[0].priority for _ in jobs] == [7, 5, 0, -3]


async def test_owners_are_served_in_turn(tmp_path: Path) -> None:
    jobs = [job("ann") for _ in range(20)] + [job("bob") for _ in range(3)]
    async with desk_with(tmp_path, jobs) as desk:
        owners = [(await take(desk))[0].owner for _ in range(12)]
        # His lane may be read after hers: from then on they take turns.
        assert owners[owners.index("bob") :][:5].count("bob") == 3


async def test_what_is_given_together_fits_together(tmp_path: Path) -> None:
    jobs = [job(cpus=2) for _ in range(5)]
    async with desk_with(tmp_path, jobs) as desk:
        assert len(await take(desk, cpus=5, most=4)) == 2
