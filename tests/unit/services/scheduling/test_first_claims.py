"""Claims in the write that creates the job, on the simulated store in virtual time, with writes whose answers are lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import Enum
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.system.simulation.server import SimClock, SimIds
from tests.system.simulation.store import Client, Cluster
from tests.system.simulation.virtual_loop import Actor, VirtualLoop

from forestay.domain.jobs.job_document import FlowRef, JobDocument, State
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange, Stored, Unknown, WriteResult, Written
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.shared.checked_writer import CheckedWriter

SPEC = Specification("s", "lab", "sim", ("true",))
JOB = Submission(SPEC, "ann")


class Fate(Enum):
    """What becomes of one write."""

    GOOD = "good"
    ANSWER_LOST = "answer lost"
    NEVER = "never takes place"
    LATE = "takes place just before the next one"


class Store(Client):
    """The simulated store; the fates of the next writes are chosen."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.fates: list[Fate] = []
        self.late: Sequence[DocumentChange] = ()
        self.writes = 0

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        self.writes += 1
        fate = self.fates.pop(0) if self.fates else Fate.GOOD
        late, self.late = self.late, ()
        if late:
            await super().write(late)
        if fate is Fate.LATE:
            self.late = changes
        elif fate is not Fate.NEVER:
            results = await super().write(changes)
            if fate is Fate.GOOD:
                return results
        return [Unknown("lost")] * len(changes)


class FlowsSuspended:
    """No job of a flow may be had."""

    def suspended(self, document: JobDocument) -> bool:
        return document.flow_ref is not None


class Server:
    """The desks of one server, and pilots that wait at it."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(1))  # type: ignore[abstract]
        self.actor = Actor(self.loop, "server")
        self.store = Store(Cluster(Actor(self.loop, "store"), Random(2), Counter(), fields={}))
        clock, ids = SimClock(self.loop, Random(3)), SimIds(Random(4))
        self.claims = ClaimDispatcher(self.store, CheckedWriter(self.store), clock, ids, suspensions=FlowsSuspended())
        self.submit = JobSubmitter(self.store, clock, ids, listeners=[self.claims], pilots=self.claims)
        self.clock = clock
        self.actor.spawn(self.claims.run())

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def told() -> None:
            await self.actor.spawn(story())

        self.loop.run(told())
        failed = self.loop.failed_tasks()
        self.loop.close()
        if failed:
            raise AssertionError(failed[0]) from failed[0].exception()

    def pilot(self, name: str = "p", *, wait: float = 30.0, cpus: int = 1, most: int = 1) -> asyncio.Task[list[Stored]]:
        free = Resources(cpus=cpus)
        asked = self.claims.claim(ClaimRequest(pilot=name, host="h", tenant="lab", free=free, most=most), wait=wait)
        return self.actor.spawn(asked)

    async def stored(self, job: str) -> JobDocument:
        return (await self.store.get([job]))[job].document


def told(work: Callable[[Server], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that is told in virtual time."""

    def test() -> None:
        server = Server()
        server.run(lambda: work(server))

    test.__name__, test.__doc__ = work.__name__, work.__doc__
    return test


@told
async def test_a_waiting_pilot_gets_the_job_in_the_one_write_that_creates_it(server: Server) -> None:
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    (accepted,) = await server.submit.submit([JOB], by="ann")
    (got,) = await waiting
    assert server.store.writes == 1
    document = await server.stored(accepted.id)
    assert got.document == document
    assert document.state is State.RUNNING
    assert document.claim is not None
    assert document.claim.pilot == "p"
    assert [(line.rev, line.event, line.attempt) for line in document.history] == [(1, "create", 0), (2, "claim", 1)]
    assert (server.claims.tally.granted, server.claims.tally.first) == (1, 1)


@told
async def test_what_is_queued_goes_first(server: Server) -> None:
    (queued,) = await server.submit.submit([JOB], by="ann")
    await asyncio.sleep(2.0)
    waiting = server.pilot()
    (later,) = await server.submit.submit([replace(JOB, priority=9)], by="ann")
    (got,) = await waiting
    assert got.document.id in (queued.id, later.id)
    assert server.claims.tally.first == 0


@told
async def test_nothing_is_given_away_before_the_queue_was_looked_at(server: Server) -> None:
    server.pilot()
    fresh = new_job(JOB, job="j", now=server.clock.now(), by="ann")
    for _ in range(3):
        await asyncio.sleep(0)
        assert server.claims.claim_first([fresh]) is None
    await asyncio.sleep(2.0)
    claims = server.claims.claim_first([fresh])
    assert claims is not None
    claims.close()


@pytest.mark.parametrize(
    "asked",
    [
        replace(JOB, held=True),
        replace(JOB, not_before=2_000_000_000_000),
        replace(JOB, resources=Resources(cpus=2)),
        replace(JOB, specification=replace(SPEC, tenant="other")),
        replace(JOB, flow_ref=FlowRef("c", "w@1", "f", -1, 0, 1)),
    ],
    ids=["held", "later", "too large", "another tenant's", "behind a suspension"],
)
def test_a_job_that_the_pilot_may_not_have_is_created_without_a_claim(asked: Submission) -> None:
    server = Server()

    async def story() -> None:
        waiting = server.pilot(wait=6.0)
        await asyncio.sleep(2.0)
        (accepted,) = await server.submit.submit([asked], by="ann")
        assert (await server.stored(accepted.id)).state is State.AVAILABLE
        assert await waiting == []

    server.run(story)


@told
async def test_the_most_urgent_of_many_go_to_those_who_wait_and_no_pilot_gets_more_than_fits(server: Server) -> None:
    two = server.pilot("two", cpus=3, most=8)
    task = server.pilot("one", cpus=1, most=8)
    await asyncio.sleep(2.0)
    asked = [replace(JOB, priority=priority, resources=Resources(cpus=1)) for priority in (0, 5, 9, 7, 8, 1)]
    await server.submit.submit(asked, by="ann")
    assert [stored.document.priority for stored in await two] == [9, 8, 7]
    assert [stored.document.priority for stored in await task] == [5]
    assert server.store.writes == 1


@told
async def test_a_claim_whose_answer_was_lost_counts_once_it_is_confirmed(server: Server) -> None:
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    server.store.fates = [Fate.ANSWER_LOST]
    (accepted,) = await server.submit.submit([JOB], by="ann")
    (got,) = await waiting
    assert got.document == await server.stored(accepted.id)
    assert got.document.confirmations == 1
    assert (server.claims.tally.first, server.store.writes) == (1, 2)


@told
async def test_a_claim_whose_write_never_took_place_is_never_used_again(server: Server) -> None:
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    server.store.fates = [Fate.NEVER]
    (accepted,) = await server.submit.submit([JOB], by="ann")
    (got,) = await waiting
    assert got.document.id == accepted.id
    assert got.document.rev == 2
    assert (server.claims.tally.first, server.claims.tally.lost) == (0, 1)


@told
async def test_a_dropped_claim_that_turns_up_is_taken_away(server: Server) -> None:
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    server.store.fates = [Fate.LATE]
    (accepted,) = await server.submit.submit([JOB], by="ann")
    assert accepted.created is False
    (got,) = await waiting
    events = [line.event for line in got.document.history]
    assert events == ["create", "claim", "release", "claim"]
    assert got.document.attempt == 2


@told
async def test_while_the_store_is_silent_the_pilot_waits_on(server: Server) -> None:
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    server.store.fates = [Fate.NEVER] * 5
    with pytest.raises(Transient):
        await server.submit.submit([JOB], by="ann")
    assert not waiting.done()
    await asyncio.sleep(2.0)
    (accepted,) = await server.submit.submit([JOB], by="ann")
    (got,) = await waiting
    assert got.document.id == accepted.id


@told
async def test_a_pilot_that_went_away_meanwhile_leaves_the_job_to_the_next(server: Server) -> None:
    await server.submit.submit([replace(JOB, held=True)], by="ann")  # from now on the specification is known
    waiting = server.pilot("gone")
    await asyncio.sleep(2.0)
    asking = server.actor.spawn(server.submit.submit([JOB], by="ann"))
    await asyncio.sleep(0)
    waiting.cancel()
    (accepted,) = await asking
    (got,) = await server.pilot("next")
    assert got.document.id == accepted.id
    assert got.document.claim is not None
    assert got.document.claim.pilot == "next"
    assert [line.event for line in got.document.history] == ["create", "claim", "release", "claim"]


@told
async def test_one_who_repeats_a_request_does_not_get_anothers_claim(server: Server) -> None:
    """Both servers create the job of one key; the pilots of the second have nothing of it."""
    waiting = server.pilot()
    await asyncio.sleep(2.0)
    (first,) = await server.submit.submit([JOB], by="ann", key="k")
    (got,) = await waiting
    again = server.pilot(wait=4.0)
    await asyncio.sleep(2.0)
    server.submit._accepted.clear()
    (second,) = await server.submit.submit([JOB], by="ann", key="k")
    assert second == first._replace(created=False)
    assert await again == []
    assert (await server.stored(first.id)).claim == got.document.claim


fates = st.lists(st.sampled_from(Fate), max_size=12)


@given(fates=fates, pilots=st.integers(1, 3), jobs=st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_every_job_is_with_the_one_pilot_that_was_told_or_free(fates: list[Fate], pilots: int, jobs: int) -> None:
    server = Server()

    async def story() -> None:
        waiting = [server.pilot(f"p{number}", wait=5.0) for number in range(pilots)]
        await asyncio.sleep(2.0)
        server.store.fates = list(fates)
        names = [f"j{number}" for number in range(jobs)]
        asked = [JOB] * jobs
        for _ in range(5):
            try:
                accepted = await server.submit.submit(asked, by="ann", key="k")
                names = [job.id for job in accepted]
                break
            except Transient:
                continue
        else:
            pytest.fail("there are not so many fates")
        fields = {
            stored.document.id: (stored.document.claim, stored.document.token)
            for task in waiting
            for stored in await task
        }
        await asyncio.sleep(5.0)
        for name in names:
            document = await server.stored(name)
            assert len(document.history) == document.rev
            claims = [line for line in document.history if line.event == "claim"]
            assert document.attempt == len(claims)
            if name in fields:
                assert (document.claim, document.token) == fields[name]
            elif document.claim is not None:
                # Nobody was told: it waits for its pilot's heartbeats, as every claim whose writer got no answer.
                assert any(fate is not Fate.GOOD for fate in fates)

    server.run(story)


def test_the_write_of_the_simulated_store_says_what_it_did() -> None:
    """The fates above are real ones: what never takes place is not there, and what is late is."""
    server = Server()

    async def story() -> None:
        server.store.fates = [Fate.NEVER, Fate.LATE, Fate.GOOD]
        made = [JobDocument(name, "lab", "s", "n", "ann", 1, 1, Resources()) for name in "abc"]
        for document in made:
            await server.store.write([DocumentChange(document, None)])
        assert (await server.store.get(["a", "b", "c"])).keys() == {"b", "c"}
        (result,) = await server.store.write([DocumentChange(replace(made[1]), None)])
        assert not isinstance(result, Written)

    server.run(story)
