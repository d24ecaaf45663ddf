"""The simulated store: shards behind a network that loses, repeats and delays. It fills the ports of the job and pilot stores.

One `Cluster` for all; each process has its own `Client`, whose calls wait in virtual time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tests.system.simulation.faults import Chances
from tests.system.simulation.shard import ANYWAY, Entry, Shard
from tests.system.simulation.virtual_loop import Actor, Turn

from forestay.domain.jobs.job_document import JobDocument, search_fields
from forestay.domain.jobs.specification import Specification
from forestay.domain.pilots.pilot import HeartbeatPage, Pilot
from forestay.formats.jobs.job_json import job_from_json, job_to_json
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import (
    Conflicted,
    DocumentChange,
    JobPage,
    JobQuery,
    Record,
    SpecificationUse,
    Stored,
    Unknown,
    Version,
    WriteResult,
    Written,
)
from forestay.ports.pilots.pilot_store import StoredPilot

TIMEOUT = 2.0
Line = tuple[str, Version | None, Any]
Told = Callable[[str, Entry[Any] | None, Entry[Any]], None]


def _nobody(name: str, before: Entry[Any] | None, after: Entry[Any]) -> None:
    """Nothing is watched on this shard."""


TOO_SHORT = "a simulation is too short for what ended long ago"


class Cluster:
    """The shards, the network before them, and the true history behind them."""

    def __init__(
        self,
        actor: Actor,
        rng: Random,
        tally: Counter[str],
        *,
        fields: Mapping[str, Told],
        number_only: bool = False,
        through_json: bool = False,
    ) -> None:
        self.actor = actor
        self.loop = actor.loop
        self.rng = rng
        self.tally = tally
        self.chances = Chances()
        self.outage = False
        self.through_json = through_json
        names = ("jobs", "records", "specifications", "pilots", "heartbeats")
        self.shards: dict[str, Shard[Any]] = {
            name: Shard(name, rng, tally, fields.get(name, _nobody), number_only=number_only) for name in names
        }
        self._replicated: dict[str, float] = {}

    # -- writes ------------------------------------------------------------------------------------------------

    def write(self, index: str, lines: Sequence[Line], answer: asyncio.Future[list[WriteResult]]) -> None:
        """One request with some lines; the answer comes, or not, and says what happened, or not."""
        chances, draw = self.chances, self.rng.random()
        count = len(lines)
        if self.outage:
            self.tally["request in an outage"] += 1
            self._tell(answer, [Unknown("no connection")] * count, 0.01 if self.rng.random() < 0.5 else TIMEOUT)
            return
        if draw < chances.request_lost:
            self.tally["request lost"] += 1
            self._tell(answer, [Unknown("timeout")] * count, TIMEOUT)
            return
        draw -= chances.request_lost
        if draw < chances.answer_lost:
            self.actor.later(self._way(), self._execute, index, lines, None)
            self._tell(answer, [Unknown("timeout")] * count, TIMEOUT)
            self.tally["answer lost"] += 1
            return
        draw -= chances.answer_lost
        if draw < chances.forked:
            conflict = self.rng.random() < 0.5
            verdict: WriteResult = Conflicted("version conflict") if conflict else Unknown("reset")
            self.actor.later(0.02 + 10.0 * self.rng.random() ** 3, self._fork, index, lines)
            self._tell(answer, [verdict] * count, 0.01 if conflict else self.rng.random() * TIMEOUT)
            return
        draw -= chances.forked
        timer = self._tell(answer, [Unknown("timeout")] * count, TIMEOUT)
        work = self._execute_twice if draw < chances.own_conflict else self._execute
        self.actor.later(self._way(), work, index, lines, answer, timer)

    def _fork(self, index: str, lines: Sequence[Line]) -> None:
        if not self.outage and any(self._execute(index, lines, None)):
            self.tally["forked request took effect"] += 1

    def _execute_twice(
        self, index: str, lines: Sequence[Line], answer: asyncio.Future[list[WriteResult]], timer: Turn
    ) -> None:
        if any(self._execute(index, lines, None)):
            self.tally["own-write conflict"] += 1
        self._execute(index, lines, answer, timer)

    def _execute(
        self,
        index: str,
        lines: Sequence[Line],
        answer: asyncio.Future[list[WriteResult]] | None,
        timer: Turn | None = None,
    ) -> list[Entry[Any] | None]:
        shard = self.shards[index]
        if shard.down:
            return []
        now = self.loop.time()
        copy = shard.copy_for_write()
        if copy is shard.old:
            self.tally["write to a stale primary"] += 1
        entries = [shard.apply(copy, name, value, expected, now) for name, expected, value in lines]
        latest = now
        for (name, _, _), entry in zip(lines, entries, strict=True):
            if entry is not None and not entry.committed:
                key = f"{index}/{name}"
                latest = max(latest, now + self._way(), self._replicated.get(key, 0.0))
        for (name, _, _), entry in zip(lines, entries, strict=True):
            if entry is not None and not entry.committed:
                self._replicated[f"{index}/{name}"] = latest
        self.actor.later(latest - now, self._finish, shard, lines, entries, answer, timer)
        return entries

    def _finish(
        self,
        shard: Shard[Any],
        lines: Sequence[Line],
        entries: Sequence[Entry[Any] | None],
        answer: asyncio.Future[list[WriteResult]] | None,
        timer: Turn | None,
    ) -> None:
        """The write reaches the replica; if it is committed there its sender may be told."""
        now = self.loop.time()
        done = [
            entry is None or shard.replicate(name, entry, now)
            for (name, _, _), entry in zip(lines, entries, strict=True)
        ]
        if answer is None or not all(done):
            return  # its sender waits in vain
        if timer is not None:
            timer.cancel()
        results: list[WriteResult] = [
            Conflicted("version conflict") if entry is None else Written(entry.version) for entry in entries
        ]
        if len(results) > 1 and self.rng.random() < self.chances.partial:
            self.tally["part of an answer lost"] += 1
            results = [Unknown("shard failure") if self.rng.random() < 0.5 else result for result in results]
        self._tell(answer, results, self._way())

    # -- reads -------------------------------------------------------------------------------------------------

    def read(self, index: str, look: Callable[[Shard[Any], float], Any], answer: asyncio.Future[Any]) -> None:
        """One request that reads; the answer is what one copy knows."""
        if self.outage or self.rng.random() < self.chances.read_lost:
            self.tally["read lost"] += 1
            self.actor.later(0.01 if self.rng.random() < 0.5 else TIMEOUT, _fail, answer, "no answer")
            return
        self.actor.later(self._way(), self._look, index, look, answer)

    def _look(self, index: str, look: Callable[[Shard[Any], float], Any], answer: asyncio.Future[Any]) -> None:
        shard = self.shards[index]
        if shard.down:
            self.actor.later(TIMEOUT, _fail, answer, "no primary")
            return
        result = look(shard, self.loop.time())
        self.actor.later(self._way(), _set, answer, result)

    def _tell(self, answer: asyncio.Future[Any], result: Any, delay: float) -> Turn:
        return self.actor.later(delay, _set, answer, result)

    def _way(self) -> float:
        """How long a message is under way."""
        if self.chances.slow and self.rng.random() < self.chances.slow:
            return 1.5 * self.rng.random()
        return 0.001 + 0.004 * self.rng.random()


def _set(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    if not answer.done():
        answer.set_exception(Transient(why))


class Client:
    """One process's way to the store; fills `JobStore` and `PilotStore`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.loop = cluster.loop

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def _write(self, index: str, lines: Sequence[Line]) -> list[WriteResult]:
        answer: asyncio.Future[list[WriteResult]] = self.loop.create_future()
        self.cluster.write(index, lines, answer)
        return await answer

    async def _read(self, index: str, look: Callable[[Shard[Any], float], Any]) -> Any:
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.cluster.read(index, look, answer)
        return await answer

    async def _get(self, index: str, names: Sequence[str]) -> dict[str, Entry[Any]]:
        def look(shard: Shard[Any], _now: float) -> dict[str, Entry[Any]]:
            return {name: entry for name in names if (entry := shard.get(name)) is not None}

        entries: dict[str, Entry[Any]] = await self._read(index, look)
        return entries

    # -- jobs --------------------------------------------------------------------------------------------------

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        assert len({change.document.id for change in changes}) == len(changes), "a bulk names a document twice"
        return await self._write(
            "jobs", [(change.document.id, change.expected, self._sent(change.document)) for change in changes]
        )

    def _sent(self, document: JobDocument) -> JobDocument:
        return job_from_json(job_to_json(document)) if self.cluster.through_json else document

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]:
        entries = await self._get("jobs", jobs)
        return {name: Stored(entry.value, entry.version) for name, entry in entries.items()}

    async def search(
        self, query: JobQuery, *, sort: str = "created", limit: int = 100, cursor: str | None = None
    ) -> JobPage:
        by, down = sort.removeprefix("-"), sort.startswith("-")

        def look(shard: Shard[Any], now: float) -> JobPage:
            results = [
                (_fields(entry)[by], name, entry) for name, entry in shard.search(now).items() if _matches(query, entry)
            ]
            results.sort(key=lambda result: result[:2], reverse=down)
            if cursor is not None:
                key, _, name = cursor.partition("|")
                after = (int(key), name)
                results = [result for result in results if (result[:2] < after if down else result[:2] > after)]
            page = results[:limit]
            for _, _, entry in page:
                entry.read_dirty |= not entry.committed
            following = f"{page[-1][0]}|{page[-1][1]}" if len(results) > limit else None
            return JobPage([Stored(entry.value, entry.version) for _, _, entry in page], following)

        job_page: JobPage = await self._read("jobs", look)
        return job_page

    async def count(self, query: JobQuery, *, by: str) -> Mapping[str, int]:
        def look(shard: Shard[Any], now: float) -> dict[str, int]:
            return dict(
                Counter(str(_fields(entry)[by]) for entry in shard.search(now).values() if _matches(query, entry))
            )

        result: dict[str, int] = await self._read("jobs", look)
        return result

    async def tally(self, query: JobQuery, *, over: str, step: int, by: str) -> Sequence[Mapping[str, int]]:
        raise NotImplementedError("nothing that is simulated looks back")

    async def refresh(self, *, only_jobs: bool = False) -> None:
        def look(shard: Shard[Any], now: float) -> None:
            shard.refresh(now)

        await self._read("jobs", look)

    async def remove(self, jobs: Sequence[Stored]) -> int:
        raise NotImplementedError(TOO_SHORT)

    async def drop_records(
        self, before: int, *, kinds: Sequence[str] = (), jobs: Sequence[str] = (), ids: Sequence[str] = ()
    ) -> int:
        raise NotImplementedError(TOO_SHORT)

    async def unused_specifications(self, before: int, *, limit: int = 500) -> Sequence[SpecificationUse]:
        raise NotImplementedError(TOO_SHORT)

    async def note_use(self, uses: Sequence[SpecificationUse], used: int) -> int:
        raise NotImplementedError(TOO_SHORT)

    async def remove_specifications(self, uses: Sequence[SpecificationUse]) -> int:
        raise NotImplementedError(TOO_SHORT)

    async def drop_gone(self, before: int) -> int:
        raise NotImplementedError(TOO_SHORT)

    # -- specifications and records ----------------------------------------------------------------------------

    async def put_specifications(self, specifications: Sequence[Specification], *, used: int = 0) -> None:
        await self._create(
            "specifications", [(specification.id, None, specification) for specification in specifications]
        )

    async def get_specifications(self, ids: Sequence[str]) -> Mapping[str, Specification]:
        return {name: entry.value for name, entry in (await self._get("specifications", ids)).items()}

    async def add_records(self, records: Sequence[Record]) -> Sequence[bool]:
        return await self._create("records", [(record.id, None, record) for record in records])

    async def _create(self, index: str, lines: Sequence[Line]) -> list[bool]:
        """Create-only, by the law of the port: what is said to stand stays."""
        results = await self._write(index, lines)
        if any(isinstance(write_result, Unknown) for write_result in results):
            raise Transient("not every document is surely stored")
        status = [name for (name, _, _), result in zip(lines, results, strict=True) if isinstance(result, Conflicted)]
        if status:
            # A conflict may be with a writing that is rolled back: only an acknowledged one over it says that it stays.
            entries = await self._get(index, status)
            if len(entries) < len(status):
                raise Transient("a document that stood cannot be read")
            again = await self._write(index, [(name, entry.version, entry.value) for name, entry in entries.items()])
            if not all(isinstance(write_result, Written) for write_result in again):
                raise Transient("a document that stood could not be confirmed")
        return [isinstance(write_result, Written) for write_result in results]

    async def get_record(self, record: str) -> Record | None:
        entry = (await self._get("records", [record])).get(record)
        return entry.value if entry is not None else None

    async def find_records(
        self,
        *,
        kind: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        since: int | None = None,
        after: tuple[int, str] | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> Sequence[Record]:
        def look(shard: Shard[Any], now: float) -> list[Record]:
            values = [
                entry.value
                for entry in shard.search(now).values()
                if (kind is None or entry.value.kind == kind)
                and (job is None or entry.value.job == job)
                and (tenant is None or entry.value.tenant == tenant)
                and (since is None or entry.value.at >= since)
                and (after is None or (entry.value.at, entry.value.id) > after)
            ]
            return sorted(values, key=lambda value: (value.at, value.id), reverse=newest_first)[:limit]

        records: list[Record] = await self._read("records", look)
        return records

    # -- pilots and heartbeats --------------------------------------------------------------------------------------

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        return (await self._write("pilots", [(pilot.id, expected, pilot)]))[0]

    async def get_pilot(self, pilot: str) -> StoredPilot | None:
        entry = (await self._get("pilots", [pilot])).get(pilot)
        return StoredPilot(entry.value, entry.version) if entry is not None else None

    async def find_pilots(
        self, *, tenant: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Sequence[Pilot]:
        def look(shard: Shard[Any], now: float) -> list[Pilot]:
            return [entry.value for entry in shard.search(now).values() if state is None or entry.value.state == state]

        pilots: list[Pilot] = await self._read("pilots", look)
        return pilots[:limit]

    async def put_heartbeat_page(self, heartbeat_page: HeartbeatPage) -> None:
        (result,) = await self._write(
            "heartbeats", [(f"{heartbeat_page.server}/{heartbeat_page.bucket}", ANYWAY, heartbeat_page)]
        )
        if not isinstance(result, Written):
            raise Transient("the heartbeat page may not be stored")

    async def heartbeat_pages(self, *, fresh: bool = False, but_of: str = "") -> Sequence[HeartbeatPage]:
        def look(shard: Shard[Any], now: float) -> list[HeartbeatPage]:
            if fresh:
                shard.refresh(now)
            return [entry.value for entry in shard.search(now).values() if entry.value is not None]

        heartbeat_pages: list[HeartbeatPage] = await self._read("heartbeats", look)
        return [heartbeat_page for heartbeat_page in heartbeat_pages if heartbeat_page.server != but_of]

    async def drop_heartbeat_pages(self, server: str) -> None:
        def look(shard: Shard[Any], now: float) -> list[str]:
            shard.refresh(now)
            return [name for name, entry in shard.search(now).items() if entry.value and entry.value.server == server]

        names: list[str] = await self._read("heartbeats", look)
        await self._write("heartbeats", [(name, ANYWAY, None) for name in names])


def _fields(entry: Entry[Any]) -> dict[str, Any]:
    if entry.fields is None:
        document: JobDocument = entry.value
        names = ("created", "changed", "not_before")
        entry.fields = search_fields(document) | {name: getattr(document, name) for name in names}
    return entry.fields


def _matches(query: JobQuery, entry: Entry[Any]) -> bool:
    document: JobDocument = entry.value
    if query.states and document.state not in query.states:
        return False
    if query.held is not None and bool(document.holders) is not query.held:
        return False
    if query.tenant is not None and document.tenant != query.tenant:
        return False
    fields = _fields(entry)
    if query.slots is not None and fields["slot"] not in query.slots:
        return False
    if any(fields.get(name) not in values for name, values in query.anyof.items()):
        return False
    return all((value := fields.get(name)) is not None and value <= most for name, most in query.at_most.items())
