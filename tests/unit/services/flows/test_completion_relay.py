"""The relay on a real SQLite store: what it tells a shard, when, and how little it reads to know it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.flows.events import Event, JobsEnded
from forestay.domain.flows.scatter.shard_run import BatchEnded, ShardEvent
from forestay.domain.jobs.job_document import FlowRef, JobDocument, State
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import DocumentChange, JobPage, JobQuery
from forestay.services.flows.completion_facts import CompletionFacts
from forestay.services.flows.completion_relay import CROWD, CompletionRelay

SPEC = Specification("s", "t", "noop", ("true",))
BEGIN = 1_700_000_000_000


class CountingStore(SqlJobStore):
    """Knows how many documents were read by search."""

    read = 0

    async def search(
        self, query: JobQuery, *, sort: str = "created", limit: int = 100, cursor: str | None = None
    ) -> JobPage:
        page = await super().search(query, sort=sort, limit=limit, cursor=cursor)
        self.read += len(page.jobs)
        return page


@dataclass
class HandClock:
    """Both kinds of time, moved by hand."""

    at: float = 0.0

    def now(self) -> int:
        return BEGIN + int(1000 * self.at)

    def monotonic(self) -> float:
        return 1000 + self.at


@dataclass
class Engine:
    """Hears what shards are told."""

    received: list[int] = field(default_factory=list)

    async def tell_run(self, run: str, events: Sequence[Event]) -> None:
        (event,) = events
        assert isinstance(event, JobsEnded)
        self.received.append(event.well)

    async def tell_shard(self, run: str, work: str, shard: int, events: Sequence[ShardEvent]) -> None:
        for event in events:
            assert isinstance(event, BatchEnded)
            self.received.append(event.well)


@dataclass
class Room:
    relay: CompletionRelay
    store: CountingStore
    clock: HandClock
    engine: Engine

    async def end(self, places: range, *, of: int, at: int | None = None, prompt: bool = False, shard: int = 0) -> None:
        """Jobs of one shard that end now, or that seem to have ended at another time."""
        now = self.clock.now() if at is None else at
        ref = FlowRef("run", "each@1", "v", shard, 0, of, prompt=prompt)
        await self.store.write([DocumentChange(ended(place, ref, now), None) for place in places])


def ended(place: int, ref: FlowRef, at: int) -> JobDocument:
    asked = Submission(SPEC, "ann", index=place, flow_ref=ref._replace(place=place))
    return replace(new_job(asked, job=f"job-{place}", now=at, by="ann"), state=State.COMPLETED)


class NoChecks:
    """No rule asks about the ends of tasks."""

    async def job_ended(self, *_about: object) -> str:
        return ""


@asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    store = CountingStore(f"sqlite:///{folder / 'jobs.db'}")
    await store.open()
    clock, engine = HandClock(), Engine()
    ends = CompletionFacts(cast("Any", None))
    relay = CompletionRelay(
        store, SqlDocumentStore(store.database), cast("FlowEngine", engine), ends, clock, cast("Any", NoChecks())
    )
    try:
        await relay.look()
        yield Room(relay, store, clock, engine)
    finally:
        await store.close()


async def test_a_shard_is_told_of_half_its_ends_at_once_and_of_the_last_at_once(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.end(range(1999), of=4000)
        await here.relay.look()
        assert here.engine.received == []
        await here.end(range(1999, 2000), of=4000)
        await here.relay.look()
        assert [well.bit_count() for well in here.engine.received] == [2000]
        await here.end(range(2000, 4000), of=4000)
        await here.relay.look()
        assert [well.bit_count() for well in here.engine.received] == [2000, 2000]


async def test_the_few_ends_of_a_shard_wait_longer_each_time(tmp_path: Path) -> None:
    waits = []
    async with room(tmp_path) as here:
        for number in range(6):
            await here.end(range(number, number + 1), of=5000)
            since = here.clock.at
            while len(here.engine.received) == number:
                here.clock.at += 5
                await here.relay.look()
            waits.append(here.clock.at - since)
    # Of 30 s each time, an hour's ends would cost a shard 120 signals.
    assert waits == [35, 65, 125, 245, 245, 245]


async def test_where_another_task_takes_them_up_a_shard_is_told_sooner(tmp_path: Path) -> None:
    waits = []
    async with room(tmp_path) as here:
        for number in range(7):
            await here.end(range(number, number + 1), of=5000, prompt=True)
            since = here.clock.at
            while len(here.engine.received) == number:
                here.clock.at += 1
                await here.relay.look()
            waits.append(here.clock.at - since)
    assert waits == [2, 3, 5, 9, 17, 31, 31]


async def test_and_a_run_within_a_second_each_time(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        for number in range(3):
            await here.end(range(number, number + 1), of=400, prompt=True, shard=-1)
            await here.relay.look()
            assert len(here.engine.received) == number
            here.clock.at += 1
            await here.relay.look()
            assert len(here.engine.received) == number + 1


async def test_what_was_seen_is_not_read_again_and_again(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.end(range(CROWD + 500), of=5000)
        await here.relay.look()
        here.clock.at += 11
        await here.relay.look()
        before = here.store.read
        for _ in range(100):
            here.clock.at += 1
            await here.relay.look()
        assert here.store.read == before


async def test_what_became_visible_late_is_found_by_counting(tmp_path: Path) -> None:
    async with room(tmp_path) as here:
        await here.end(range(1500), of=1502)
        await here.relay.look()
        here.clock.at += 40
        await here.end(range(1500, 1501), of=1502)
        await here.relay.look()
        then = here.clock.now() - 30_000
        await here.end(range(1501, 1502), of=1502, at=then)  # its write took half a minute
        here.clock.at += 25
        before = here.store.read
        await here.relay.look()
        assert sum(well.bit_count() for well in here.engine.received) == 1502
        assert here.store.read - before < 100  # the 1,500 were counted, not read
