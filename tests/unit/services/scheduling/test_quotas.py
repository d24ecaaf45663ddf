"""Quotas and shares in the claim path, on a real SQLite store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.claim import claim
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.scheduling.quota import QuotaKind, QuotaLimits, QuotaPolicy, QuotaSubject, QuotaUse
from forestay.ports.jobs.job_store import DocumentChange, Stored
from forestay.services.scheduling import quota_ledgers
from forestay.services.scheduling.candidate_buffers import CandidateSignal
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.fair_shares import KIND as SHARES
from forestay.services.scheduling.fair_shares import FairShares
from forestay.services.scheduling.licence_seats import LicenceSeats, WantedSeats
from forestay.services.scheduling.quota_ledgers import QuotaLedgers
from forestay.services.scheduling.quota_policies import KIND as POLICIES
from forestay.services.scheduling.quota_policies import QuotaPolicies
from forestay.services.shared.checked_writer import CheckedWriter, ProposedWrite, WriteListener

ADA, PHYSICS = QuotaSubject(QuotaKind.OWNER, "ada"), QuotaSubject(QuotaKind.TEAM, "physics")
EACH = QuotaSubject(QuotaKind.OWNER, "*")


def job(owner: str = "ada", cpus: int = 1, licence: str = "") -> JobDocument:
    spec = Specification("s", "t", "noop", ("true",), licences={licence: 1} if licence else {})
    submission = Submission(spec, owner, resources=Resources(cpus=cpus))
    return new_job(submission, job=RandomIds().job(), now=SystemClock().now(), by=owner)


class Desk(NamedTuple):
    claims: ClaimDispatcher
    quotas: QuotaLedgers
    shares: FairShares
    seats: LicenceSeats
    store: SqlJobStore
    documents: SqlDocumentStore
    writer: CheckedWriter

    async def take(self, *, most: int = 1, wait: float = 20.0, free: int = 64) -> list[JobDocument]:
        got = await self.claims.claim(
            ClaimRequest(pilot="p", host="h", tenant="t", free=Resources(cpus=free), most=most, batch=most), wait=wait
        )
        return [stored.document for stored in got]

    async def drain(self, number: int) -> list[JobDocument]:
        """So many jobs, and no more than these are given."""
        every: list[JobDocument] = []
        while len(every) < number:
            got = await self.take(most=100)
            assert got, f"{len(every)} of {number} were given"
            every += got
        assert await self.take(wait=0.5) == []
        return every

    async def end(self, document: JobDocument) -> None:
        held = document.claim
        assert held is not None

        def ended(known: JobDocument) -> JobDocument:
            return known.having(state=State.COMPLETED, claim=None, former_claim=held.id, phase=None)

        await self.writer.write([ProposedWrite(document.id, ended, lambda _document: False)])

    async def set(self, subject: QuotaSubject, limits: QuotaLimits | None) -> None:
        await self.quotas.change("t", lambda policy: policy.having(subject, limits))

    async def used(self) -> dict[str, QuotaUse]:
        return {str(state.subject): state.used for state in await self.quotas.states("t")}


@asynccontextmanager
async def desk_on(
    store: SqlJobStore,
    policy: QuotaPolicy | None = None,
    *,
    server: str = "first",
    slots: frozenset[int] = frozenset(range(SLOTS)),
    every: float = 0.05,
) -> AsyncIterator[Desk]:
    """One server."""
    writer, clock, signal = CheckedWriter(store), SystemClock(), CandidateSignal()
    documents = SqlDocumentStore(store.database)
    policies = QuotaPolicies(documents)
    quotas = QuotaLedgers(
        documents, store, writer, clock, policies, server=server, alone=lambda: False, every=every, changed=signal.wake
    )
    shares = FairShares(documents, store, clock, policies, every=0.1)
    seats = LicenceSeats(documents, writer, clock, every=0.05, changed=signal.look_anew)
    writer.listeners += [seats, quotas]
    if policy is not None:
        await quotas.change("t", lambda _before: policy)
    claims = ClaimDispatcher(
        store, writer, clock, RandomIds(), signal=signal, seats=seats, quotas=quotas, shares=shares
    )
    writer.listeners.append(claims)
    claims.assign_hash_slots(slots)
    loops = (claims.run(), quotas.run(), shares.run(), seats.run())
    running = [asyncio.create_task(loop) for loop in loops]
    try:
        yield Desk(claims, quotas, shares, seats, store, documents, writer)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def desk_with(folder: Path, jobs: list[JobDocument], policy: QuotaPolicy | None = None) -> AsyncIterator[Desk]:
    store = SqlJobStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    await store.write([DocumentChange(document, None) for document in jobs])
    try:
        async with desk_on(store, policy) as desk:
            yield desk
    finally:
        await store.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        for _ in range(10_000):
            if await condition():
                return
            await asyncio.sleep(0.05)


async def test_no_more_jobs_run_than_the_quota_allows_and_others_pass(tmp_path: Path) -> None:
    jobs = [job() for _ in range(8)] + [job("bob") for _ in range(3)]
    async with desk_with(tmp_path, jobs, QuotaPolicy({ADA: QuotaLimits(jobs=3)})) as desk:
        got = await desk.drain(6)
        assert Counter(document.owner for document in got) == {"ada": 3, "bob": 3}
        waiting = next(document for document in jobs if document.id not in {known.id for known in got})
        assert await desk.quotas.waits_for(waiting) == "quota of owner ada: 3 of 3 running jobs"
        await desk.end(next(document for document in got if document.owner == "ada"))
        assert [document.owner for document in await desk.take()] == ["ada"]
        assert await desk.used() == {"owner:ada": QuotaUse(3, 3, 0)}


async def test_cores_are_counted_over_the_owners_of_a_team(tmp_path: Path) -> None:
    jobs = [job(owner, cpus=4) for owner in ("ada", "bob", "ada", "bob")] + [job("eve", cpus=4), job("ada", cpus=2)]
    policy = QuotaPolicy({PHYSICS: QuotaLimits(cpus=10)}, {"ada": "physics", "bob": "physics"})
    async with desk_with(tmp_path, jobs, policy) as desk:
        got = await desk.drain(4)
        assert sum(document.resources.cpus for document in got if document.owner != "eve") == 10
        assert "eve" in {document.owner for document in got}
        assert (await desk.used())["team:physics"] == QuotaUse(3, 10, 0)


async def test_everyone_has_the_quota_of_everyone(tmp_path: Path) -> None:
    jobs = [job(owner) for owner in ("ada", "bob", "eve") for _ in range(4)]
    own = QuotaSubject(QuotaKind.OWNER, "eve")
    async with desk_with(tmp_path, jobs, QuotaPolicy({EACH: QuotaLimits(jobs=1), own: QuotaLimits(jobs=3)})) as desk:
        assert Counter(document.owner for document in await desk.drain(5)) == {"ada": 1, "bob": 1, "eve": 3}


async def test_what_ran_before_a_quota_was_set_counts_in_it(tmp_path: Path) -> None:
    jobs = [job() for _ in range(6)]
    async with desk_with(tmp_path, jobs) as desk:
        got = await desk.take(most=4)
        assert len(got) == 4
        await desk.set(ADA, QuotaLimits(jobs=2))
        assert await desk.used() == {"owner:ada": QuotaUse(4, 4, 0)}
        assert await desk.take(wait=0.5) == []
        for document in got[:3]:
            await desk.end(document)
        await desk.drain(1)
        await desk.set(ADA, None)
        assert len(await desk.take()) == 1


async def test_a_claim_of_a_server_that_does_not_know_quotas_is_entered_later(tmp_path: Path) -> None:
    document = job()
    async with desk_with(tmp_path, [document], QuotaPolicy({ADA: QuotaLimits(jobs=1)})) as desk:
        claimed = claim(document, claim_id="old", pilot="p", host="h", now=SystemClock().now())
        assert isinstance(claimed, JobDocument)
        known = (await desk.store.get([document.id]))[document.id]
        await desk.store.write([DocumentChange(claimed, known.version)])
        await desk.quotas.put_in_order()
        assert await desk.used() == {"owner:ada": QuotaUse(1, 1, 0)}
        assert desk.quotas.adopted == 1


async def test_what_a_dead_server_entered_is_removed_and_its_late_claim_fails(tmp_path: Path) -> None:
    asked, running = job(), job("bob")
    async with desk_with(tmp_path, [asked, running], QuotaPolicy({EACH: QuotaLimits(jobs=1)})) as desk:
        known = (await desk.store.get([asked.id]))[asked.id]
        assert await desk.quotas.take([WantedSeats("dead", asked)]) == {"dead"}
        assert await desk.quotas.take([WantedSeats("second", asked)]) == frozenset()
        assert [document.id for document in await desk.take()] == [running.id]
        await desk.quotas.sweep(older=0)
        assert await desk.used() == {"owner:*": QuotaUse(), "owner:bob": QuotaUse(1, 1, 0)}
        (late,) = await desk.store.write([DocumentChange(known.document.having(state=State.RUNNING), known.version)])
        assert "conflict" in repr(late).lower()


async def test_a_seat_is_returned_when_the_quota_is_used_up(tmp_path: Path) -> None:
    document = job(licence="matlab")
    async with desk_with(tmp_path, [document], QuotaPolicy({ADA: QuotaLimits(jobs=1)})) as desk:
        await desk.seats.put("matlab", 1)
        assert await desk.quotas.take([WantedSeats("other", job())]) == {"other"}
        desk.quotas._used.clear()  # as on a server whose copy is old
        assert await desk.take(wait=0.5) == []

        async def unused() -> bool:
            return (await desk.seats.all())[0].used == 0

        await until(unused)


async def test_no_documents_are_left_when_the_quotas_are_gone(tmp_path: Path) -> None:
    jobs = [job() for _ in range(2)]
    policy = QuotaPolicy({ADA: QuotaLimits(jobs=1)}, {"ada": "physics"}, half_life=60)
    async with desk_with(tmp_path, jobs, policy) as desk:
        (document,) = await desk.take()
        await until(lambda: _any(desk, SHARES))
        await desk.end(document)
        await desk.quotas.change("t", lambda _policy: QuotaPolicy())
        assert await desk.documents.find(POLICIES) == []
        await desk.drain(1)
        await desk.quotas.sweep(older=0)
        assert len(await desk.documents.find(quota_ledgers.KIND)) == 1, "a server may still hold its version"
        clock = Later()
        later = QuotaLedgers(desk.documents, desk.store, desk.writer, clock, desk.quotas.policies)
        await later.sweep()
        await FairShares(desk.documents, desk.store, clock, desk.quotas.policies).refresh()
        assert await desk.documents.find(quota_ledgers.KIND) == []
        assert not await _any(desk, SHARES)


class Later(SystemClock):
    """Two days from now."""

    def now(self) -> int:
        return super().now() + 2 * 86_400_000


async def _any(desk: Desk, kind: str) -> bool:
    return bool(await desk.documents.find(kind))


async def test_owners_are_served_by_their_shares(tmp_path: Path) -> None:
    jobs = [job(owner) for owner in ("ada", "bob") for _ in range(60)]
    policy = QuotaPolicy({ADA: QuotaLimits(share=3.0)}, half_life=3600)
    async with desk_with(tmp_path, jobs, policy) as desk:
        await until(lambda: _active(desk))
        got = [document for _ in range(10) for document in await desk.take(most=4)]
        # 30 and 10; a count of what runs may miss the bulk that is being written at that moment.
        assert abs(Counter(document.owner for document in got)["ada"] - 30) <= 4


async def _active(desk: Desk) -> bool:
    return desk.shares.active


async def test_who_used_less_recently_is_served_first(tmp_path: Path) -> None:
    jobs = [job(owner) for owner in ("ada", "bob") for _ in range(20)]
    async with desk_with(tmp_path, jobs, QuotaPolicy(half_life=3600)) as desk:
        await until(lambda: _any(desk, SHARES))
        (stored,) = await desk.documents.find(SHARES)
        body = {"at": SystemClock().now(), "recent": {"ada": 8.0}}
        await desk.documents.put([(stored.document._replace(body=body), stored.version)])

        async def read() -> bool:
            return "ada" in desk.shares.uses("t")

        await until(read)
        got = Counter([document.owner for _ in range(16) for document in await desk.take()])
        assert 6 <= got["bob"] - got["ada"] <= 10, "from then on they take turns"


class Running(WriteListener):
    """Counts what runs, as acknowledged by the store."""

    def __init__(self) -> None:
        self.cores: dict[str, int] = {}
        self.most = 0

    def notice(self, stored: Stored) -> None:
        document = stored.document
        self.cores[document.id] = document.resources.cpus if document.claim is not None else 0
        self.most = max(self.most, sum(self.cores.values()))


async def test_two_servers_together_never_exceed_a_quota_and_run_everything(tmp_path: Path) -> None:
    jobs = [job(owner, cpus=cpus) for owner in ("ada", "bob") for cpus in (1, 2, 3) for _ in range(10)]
    policy = QuotaPolicy({PHYSICS: QuotaLimits(cpus=7)}, {"ada": "physics", "bob": "physics"})
    running, done = Running(), list[str]()
    async with desk_with(tmp_path, jobs, policy) as first, desk_on(first.store) as second:
        for desk in (first, second):
            desk.writer.listeners.insert(0, running)

        async def pilot(desk: Desk) -> None:
            while len(done) < len(jobs):
                for document in await desk.take(wait=0.5):
                    await asyncio.sleep(0)
                    await desk.end(document)
                    done.append(document.id)

        async with asyncio.timeout(120):
            await asyncio.gather(*(pilot(desk) for desk in (first, second) for _ in range(6)))
        assert sorted(done) == sorted(document.id for document in jobs)
        assert 3 <= running.most <= 7

        async def unused() -> bool:
            return (await first.used())["team:physics"] == QuotaUse()

        await until(unused)


class HandClock(SystemClock):
    """Moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> int:
        return int(1000 * self.at)

    def monotonic(self) -> float:
        return self.at


async def test_a_server_whose_jobs_wait_gets_its_turn_though_another_hears_first_what_is_free(tmp_path: Path) -> None:
    first_job, next_job, waiting = job(), job(), job()
    async with desk_with(tmp_path, [first_job, next_job, waiting], QuotaPolicy({ADA: QuotaLimits(jobs=1)})) as desk:
        clock, policies = HandClock(), desk.quotas.policies
        first, second = (
            QuotaLedgers(
                desk.documents, desk.store, CheckedWriter(desk.store), clock, policies, server=name, alone=lambda: False
            )
            for name in ("first", "second")
        )
        assert await first.take([WantedSeats("c1", first_job)]) == {"c1"}
        assert await second.take([WantedSeats("c2", waiting)]) == frozenset()
        assert second.exhausted(waiting)
        await second.refresh()  # and says that it waits
        first.give_back({"c1"}, first_job)

        async def returned() -> bool:
            return (await desk.used())["owner:ada"] == QuotaUse()

        await until(returned)
        assert first.exhausted(next_job), "it leaves what is free to the other for a moment"
        clock.at += 1.0
        assert second.exhausted(waiting), "as it knows"
        await second.refresh()
        assert not second.exhausted(waiting)
        clock.at += 1.0
        assert not first.exhausted(next_job), "and takes it itself if the other does not"
        assert await second.take([WantedSeats("c2", waiting)]) == {"c2"}
