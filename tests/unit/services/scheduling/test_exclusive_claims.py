"""Requirements and seats in the claim path, on a real SQLite store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from forestay.adapters.cel.requirements import CelRequirements
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.pilots.pilot import FEATURES, Pilot, pilot_class
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.scheduling.candidate_buffers import CandidateSignal
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.licence_seats import LicenceSeats, WantedSeats
from forestay.services.scheduling.requirement_matcher import RequirementMatcher
from forestay.services.shared.checked_writer import CheckedWriter, ProposedWrite


def job(requires: str = "", licences: Mapping[str, int] | None = None) -> JobDocument:
    spec = Specification("s", "t", "noop", ("true",), requires=requires, licences=licences or {})
    return new_job(Submission(spec, "ann"), job=RandomIds().job(), now=SystemClock().now(), by="ann")


def machine(os: str) -> Pilot:
    return Pilot(f"p-{os}", "t", "h", "s", 1, Resources(), 60, 0, extra={FEATURES: {"os": os}})


class Desk(NamedTuple):
    claims: ClaimDispatcher
    seats: LicenceSeats
    matcher: RequirementMatcher
    store: SqlJobStore
    pilots: SqlPilotStore
    writer: CheckedWriter

    async def take(self, os: str = "el9", wait: float = 20.0) -> list[JobDocument]:
        pilot = machine(os)
        got = await self.claims.claim(
            ClaimRequest(pilot=pilot.id, host="h", tenant="t", free=Resources(), most=1, machine=pilot_class(pilot)),
            wait=wait,
        )
        return [stored.document for stored in got]

    async def end(self, document: JobDocument) -> None:
        held = document.claim
        assert held is not None

        def ended(known: JobDocument) -> JobDocument:
            return known.having(state=State.COMPLETED, claim=None, former_claim=held.id, phase=None)

        await self.writer.write([ProposedWrite(document.id, ended, lambda _document: False)])


@asynccontextmanager
async def desk_with(folder: Path, jobs: list[JobDocument], seats: Mapping[str, int]) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    await store.write([DocumentChange(job, None) for job in jobs])
    writer, clock, signal = CheckedWriter(store), SystemClock(), CandidateSignal()
    licences = LicenceSeats(SqlDocumentStore(store.database), writer, clock, every=0.05, changed=signal.look_anew)
    pilots = SqlPilotStore(store.database)
    matcher = RequirementMatcher(CelRequirements(), pilots, clock)
    writer.listeners.append(licences)
    for name, count in seats.items():
        await licences.put(name, count)
    claims = ClaimDispatcher(store, writer, clock, RandomIds(), requirements=matcher, seats=licences, signal=signal)
    claims.assign_hash_slots(frozenset(range(SLOTS)))
    running = [asyncio.create_task(claims.run()), asyncio.create_task(licences.run())]
    try:
        yield Desk(claims, licences, matcher, store, pilots, writer)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await store.close()


async def test_a_job_goes_only_to_a_pilot_that_satisfies_it(tmp_path: Path) -> None:
    picky, plain = job('os == "el9"'), job()
    async with desk_with(tmp_path, [picky, plain], {}) as desk:
        assert [document.id for document in await desk.take("debian12")] == [plain.id]
        assert await desk.take("debian12", wait=0.3) == []
        assert [document.id for document in await desk.take("el9")] == [picky.id]


async def test_a_requirement_is_evaluated_once_for_a_class(tmp_path: Path) -> None:
    async with desk_with(tmp_path, [job('os == "el9"') for _ in range(20)], {}) as desk:
        for _ in range(20):
            assert await desk.take("el9")
        assert desk.matcher.evaluated == 1


async def test_what_no_pilot_satisfies_is_named(tmp_path: Path) -> None:
    picky = job('os == "el8"')
    async with desk_with(tmp_path, [picky], {}) as desk:
        await desk.pilots.put_pilot(machine("el9"), None)
        assert await desk.matcher.waits_for(picky) == 'no pilot satisfies os == "el8"'
        assert await desk.matcher.waits_for(job('os == "el9"')) == ""


async def test_what_no_pilot_is_large_enough_for_is_named(tmp_path: Path) -> None:
    large = job()
    large = large.having(resources=replace(large.resources, memory=900 << 30, gpus=2))
    async with desk_with(tmp_path, [large], {}) as desk:
        assert await desk.matcher.waits_for(large) == "no pilot is connected"
    async with desk_with(tmp_path, [large], {}) as desk:
        for free in (Resources(8, 24 << 30), Resources(1, 100 << 30, 0, 4)):
            await desk.pilots.put_pilot(replace(machine("el9"), id=f"p-{free.cpus}", resources=free), None)
        told = await desk.matcher.waits_for(large)
        assert told == "no pilot is large enough: 900 GiB of memory needed, the nearest has 100 GiB of memory"
        assert await desk.matcher.waits_for(job()) == ""


async def test_no_more_run_than_there_are_seats(tmp_path: Path) -> None:
    jobs = [job(licences={"matlab": 1}) for _ in range(3)]
    async with desk_with(tmp_path, jobs, {"matlab": 2}) as desk:
        first, second = (await desk.take())[0], (await desk.take())[0]
        assert await desk.take(wait=0.5) == []
        assert desk.seats.missing(jobs[0]) == "1 of licence matlab needed, 0 of 2 free"
        waiting = asyncio.create_task(desk.take())
        await desk.end(first)
        assert len(await waiting) == 1
        (licence,) = await desk.seats.all()
        assert licence.used == 2
        assert second.claim is not None
        assert second.claim.id in licence.holders


async def test_a_licence_that_nobody_has_set_up_is_waited_for(tmp_path: Path) -> None:
    asked = job(licences={"ansys": 1})
    async with desk_with(tmp_path, [asked], {}) as desk:
        assert await desk.take(wait=0.3) == []
        assert await desk.seats.waits_for(asked) == "there is no licence named ansys"
        waiting = asyncio.create_task(desk.take())
        await desk.seats.put("ansys", 1)
        assert len(await waiting) == 1


async def test_what_a_dead_server_took_is_given_back_and_its_late_claim_fails(tmp_path: Path) -> None:
    asked = job(licences={"matlab": 1})
    async with desk_with(tmp_path, [asked], {"matlab": 1}) as desk:
        known = (await desk.store.get([asked.id]))[asked.id]
        assert await desk.seats.take([WantedSeats("dead", asked)]) == {"dead"}
        await desk.seats.sweep(older=0)
        assert (await desk.seats.all())[0].used == 0
        (late,) = await desk.store.write([DocumentChange(known.document.having(state=State.RUNNING), known.version)])
        assert "conflict" in repr(late).lower()
