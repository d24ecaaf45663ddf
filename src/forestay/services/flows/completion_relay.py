"""Relays the completions of jobs to their runs: in batches, at least once, and recorded.

Ended jobs are found by search over a window that overlaps the last one. Completions sent to a shard are recorded in its delivery document, a bitmap that
only relays write, after the signal: a relay that dies between the two causes a repeat, which is harmless. Any number of relays may run; each finds what
the others delivered in the document.

The completion of a single job is sent at once; those of several jobs when all have ended, when there are many, or after a while; to a shard, for which
only its last completion matters, after longer and longer times. Where another task continues with the jobs as they end, all of this happens sooner.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.flows.events import JobsEnded, RoundHeld
from forestay.domain.flows.scatter.elements import from_text, to_text
from forestay.domain.flows.scatter.shard_run import BatchEnded
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore
from forestay.ports.errors import NotFound, PortError
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored, Version, Written
from forestay.services.flows.completion_facts import CompletionFacts, ended_well, why
from forestay.services.flows.flow_checks import FlowChecks
from forestay.services.flows.flow_jobs import document_of
from forestay.services.shared.checked_writer import WriteListener
from forestay.services.shared.quarantine import Quarantine

OVERLAP = 5_000
"""Milliseconds by which each search overlaps the last: clocks differ and searches lag."""
NEAR_OVERLAP = 1_000
"""The same while very many jobs end: then counts show whether something became visible late."""
CROWD = 2_000
"""The number of completions within `OVERLAP` that counts as very many."""
COUNT_EVERY = 5.0
"""Seconds between such counts."""
DEEP_OVERLAP = 120_000
DEEP_EVERY = 60.0
"""Seconds between searches that go back further, for completions that became visible late."""
WAITS = 8
"""A shard waits this many times longer for its last completions than for the first: only its own end depends on when they arrive."""
PROMPT = 1.0
"""Seconds that the first completions wait for more where another task continues with the jobs; doubled with each signal to a shard."""
PAGE = 5000
ROOMS = 20_000
MARK = "relay:mark"
AT_ONCE = 32


@dataclass(slots=True, eq=False)
class _PendingCompletions:
    """The jobs that one shard, or a run for one round, follows; and the completions to be sent to it."""

    flow_ref: FlowRef
    tenant: str
    owner: str
    of: int
    ended: int = 0
    """The delivered completions according to the document."""
    version: Version | None = None
    read: bool = False
    closed: bool = False
    """The run or shard has ended and takes no more signals."""
    well: int = 0
    bad: int = 0
    reason: str = ""
    only: JobDocument | None = None
    """The only job of a round, ended."""
    since: float = 0.0
    oldest: int = 0
    """When the oldest undelivered completion was written."""
    seen: int = 0
    """All completions that were ever added."""
    signals: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def news(self) -> int:
        return (self.well | self.bad) & ~self.ended

    def add(self, document: JobDocument, flow_ref: FlowRef, now: float) -> bool:
        """Add a completion; returns whether it is new."""
        if self.seen >> flow_ref.place & 1:
            return False
        bit = 1 << flow_ref.place
        self.seen |= bit
        if self.ended & bit:
            return True
        if not self.news:
            self.since = now
            self.oldest = document.changed
        self.oldest = min(self.oldest, document.changed)
        if ended_well(document):
            self.well |= bit
        else:
            self.bad |= bit
            self.reason = self.reason or why(document)
        self.of = max(self.of, flow_ref.of)
        if flow_ref.of == 1:
            self.only = document
        return True


@dataclass(slots=True)
class CompletionRelay(WriteListener):
    """The service: `run` searches windows (in a reconciler), `run_hints` relays completions written in this process (in a server)."""

    store: JobStore
    documents: DocumentStore
    engine: FlowEngine
    completions: CompletionFacts
    clock: Clock
    checks: FlowChecks
    """Checks whether a round whose jobs have all ended may complete."""
    every: float = 0.5
    patience: float = 30.0
    """Seconds that a batch of completions may wait for more."""
    many: int = 500
    troubled: Callable[[str], None] = lambda _text: None
    signals: int = 0
    """The number of signals sent."""
    delivered: int = 0
    undeliverable: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _rooms: OrderedDict[str, _PendingCompletions] = field(default_factory=OrderedDict)
    _hinting: bool = False
    _hinted: list[JobDocument] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _look: asyncio.Event = field(default_factory=asyncio.Event)
    _from: int = 0
    _counted: float = -1e9
    _deep: float = -1e9
    _seen: dict[int, int] = field(default_factory=dict)
    """The number of different completions seen in each second."""

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process."""
        document = stored.document
        flow_ref = document.flow_ref
        if flow_ref is None or not flow_ref.of or not document.final:
            return
        if flow_ref.of == 1 and self._hinting:
            self._hinted.append(document)
            self._wake.set()
        else:
            self._look.set()

    async def run_hints(self) -> None:
        """Relay at once the completions of single jobs that were written in this process."""
        self._hinting = True
        while True:
            await self._wake.wait()
            self._wake.clear()
            hinted, self._hinted = self._hinted, []
            rooms = self._sort_in(hinted)
            try:
                await self._tell_all(rooms)
            except PortError as error:  # the window will find them
                self.troubled(str(error))

    async def run(self) -> None:
        """Search window after window; the first begins where the last relay had delivered everything."""
        while True:
            try:
                self._from = await self._marked()
                break
            except PortError as error:
                self.troubled(str(error))
                await asyncio.sleep(self.every)
        while True:
            self._look.clear()
            try:
                await self.look()
            except PortError as error:
                self.troubled(str(error))
            if self.crowd:
                await asyncio.sleep(1.0)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), self.every)

    async def look(self) -> None:
        """Find jobs that have ended since the last search, and send the due completions."""
        now, clock = self.clock.monotonic(), self.clock.now()
        crowd = self.crowd
        since = max(0, self._from - (NEAR_OVERLAP if crowd else OVERLAP))
        newest = max([self._from, *(1000 * second for second in await self._read_ends(since))])
        # A server whose clock is ahead must not make us skip what others write; and what was read must not be read again for ever.
        self._from = max(self._from, min(newest, self.clock.now()), clock - OVERLAP)
        if deep := now - self._deep > DEEP_EVERY:
            await self._read_late(*self._behind(DEEP_OVERLAP))
        elif crowd and now - self._counted > COUNT_EVERY:
            self._counted = now
            await self._read_late(*self._behind(3 * OVERLAP))
        await self._tell_all([room for room in self._rooms.values() if room.news and self._due(room)])
        if deep:
            self._deep = now
            await self._mark()

    @property
    def crowd(self) -> bool:
        """Whether very many jobs are ending now."""
        last = self._from // 1000
        return sum(self._seen.get(last - back, 0) for back in range(OVERLAP // 1000)) > CROWD

    async def _read_ends(self, since: int, until: int | None = None) -> Counter[int]:
        """Read the completions of that time; returns their number by second."""
        query = JobQuery(at_least={"ended": since}, at_most={} if until is None else {"ended": until - 1})
        cursor: str | None = None
        ends: Counter[int] = Counter()
        while True:
            page = await self.store.search(query, sort="ended", limit=PAGE, cursor=cursor)
            documents = [job.document for job in page.jobs]
            ends.update(document.changed // 1000 for document in documents)
            rooms = self._sort_in(documents)
            await self._tell_all([room for room in rooms if self._due(room)])
            cursor = page.cursor
            if cursor is None:
                return ends

    def _behind(self, back: int) -> tuple[int, int]:
        """The range of past seconds to check, without those that are still being read; older ones are forgotten."""
        oldest = (self._from - DEEP_OVERLAP) // 1000
        self._seen = {second: many for second, many in self._seen.items() if second >= oldest}
        return max(0, self._from - back) // 1000, (self._from - NEAR_OVERLAP) // 1000

    async def _read_late(self, first: int, last: int) -> None:
        """Read again those seconds in which completions were missed: counting costs far less than reading."""
        if first >= last:
            return
        query = JobQuery(at_least={"ended": 1000 * first}, at_most={"ended": 1000 * last - 1})
        there = sum((await self.store.count(query, by="tenant")).values())
        if there == sum(self._seen.get(second, 0) for second in range(first, last)):
            return
        if last - first > 1:
            middle = (first + last) // 2
            await self._read_late(first, middle)
            await self._read_late(middle, last)
        else:
            self._seen[first] = (await self._read_ends(1000 * first, 1000 * last))[first]

    async def _marked(self) -> int:
        """The time up to which any relay has delivered everything; 0: from the beginning."""
        stored = (await self.documents.get([MARK])).get(MARK)
        return int(str(stored.document.body["from"])) if stored is not None else 0

    async def _mark(self) -> None:
        """Record the time up to which everything was delivered; a later mark of another relay is kept."""
        untold = [room.oldest for room in self._rooms.values() if room.news and not room.closed]
        reached = min([self._from, *untold])
        stored = (await self.documents.get([MARK])).get(MARK)
        if stored is None or int(str(stored.document.body["from"])) < reached:
            document = Document(MARK, "", "relay", {"from": reached})
            await self.documents.put([(document, stored.version if stored is not None else None)])

    def _sort_in(self, documents: Sequence[JobDocument]) -> list[_PendingCompletions]:
        """The pending completions to which some ended jobs were added."""
        now = self.clock.monotonic()
        rooms: dict[str, _PendingCompletions] = {}
        for document in documents:
            flow_ref = document.flow_ref
            if flow_ref is None or not flow_ref.of:
                continue
            room = self._rooms.get(flow_ref.room)
            if room is None:
                room = self._rooms[flow_ref.room] = _PendingCompletions(
                    flow_ref, document.tenant, document.owner, flow_ref.of
                )
            self._rooms.move_to_end(flow_ref.room)
            if room.add(document, flow_ref, now):
                self._seen[document.changed // 1000] = self._seen.get(document.changed // 1000, 0) + 1
            rooms[flow_ref.room] = room
        while len(self._rooms) > ROOMS and not next(iter(self._rooms.values())).news:
            self._rooms.popitem(last=False)
        return list(rooms.values())

    def _due(self, room: _PendingCompletions) -> bool:
        waited = self.clock.monotonic() - room.since
        if not room.news or room.closed:
            return False
        if room.of == 1:
            return True
        if (room.ended | room.well | room.bad).bit_count() >= room.of:
            return True
        many, patience = self.many, self.patience
        sharded, prompt = room.flow_ref.shard >= 0, room.flow_ref.prompt
        if prompt:
            patience = min(patience, PROMPT * (1 << room.signals) if sharded else PROMPT)
        if sharded:
            many = max(many, room.of // 2)
            patience *= 1 if prompt else min(1 << room.signals, WAITS)
        return room.news.bit_count() >= many or waited >= patience

    async def _tell_all(self, rooms: Sequence[_PendingCompletions]) -> None:
        rooms = [room for room in rooms if room.news and not room.closed]
        await self._read([room for room in rooms if not room.read])
        for start in range(0, len(rooms), AT_ONCE):
            some = rooms[start : start + AT_ONCE]
            failures = await asyncio.gather(*(self._tell(room) for room in some), return_exceptions=True)
            for room, failure in zip(some, failures, strict=True):
                if isinstance(failure, PortError):
                    self.troubled(str(failure))
                elif isinstance(failure, Exception):
                    # This run is tried again at the next search; the others are not affected.
                    self.quarantine.report(room.flow_ref.room, f"{type(failure).__name__}: {failure}", self.troubled)
                elif failure is not None:
                    raise failure

    async def _read(self, rooms: Sequence[_PendingCompletions]) -> None:
        """Read what any relay has delivered before."""
        names = {_document(room.flow_ref): room for room in rooms}
        stored_documents = (
            await self.quarantine.readable(self.documents.get, list(names), self.troubled) if names else {}
        )
        for name, room in names.items():
            stored = stored_documents.get(name)
            if stored is not None:
                try:
                    room.ended |= from_text(str(stored.document.body["ended"]))
                except (KeyError, ValueError) as error:
                    # Everything is sent again: a run applies the same completion once.
                    self.quarantine.report(name, f"{type(error).__name__}: {error}", self.troubled)
                room.version = stored.version
                room.closed = bool(stored.document.body.get("closed"))
            room.read = True

    async def _tell(self, room: _PendingCompletions) -> None:
        async with room.lock:  # one signal in flight for each shard
            news = room.news
            if not news or room.closed:
                return
            well, bad, flow_ref = room.well & news, room.bad & news, room.flow_ref
            try:
                if flow_ref.shard >= 0:
                    ended = BatchEnded(well, bad, 0, room.reason if bad else "")
                    await self.engine.tell_shard(flow_ref.run, flow_ref.work, flow_ref.shard, [ended])
                else:
                    await self.engine.tell_run(flow_ref.run, await self._for_run(room, well, bad))
                self.signals += 1
                room.signals += 1
                self.delivered += news.bit_count()
            except NotFound:
                room.closed = True
                self.undeliverable += news.bit_count()
            await self._remember(room, news)

    async def _for_run(self, room: _PendingCompletions, well: int, bad: int) -> list[JobsEnded | RoundHeld]:
        facts = await self.completions.facts(room.only) if room.only is not None else {}
        now, work = self.clock.now(), room.flow_ref.work
        events: list[JobsEnded | RoundHeld] = []
        if (room.ended | well | bad).bit_count() >= room.of:
            held = await self.checks.job_ended(room.tenant, room.owner, room.flow_ref, bad, facts)
            # Before the completions: a task that must wait must not end first.
            events += [RoundHeld(now, work, held)] if held else []
        ended = JobsEnded(
            now, work, well, bad, 0, facts.get("exit_code"), facts.get("result"), room.reason if bad else ""
        )
        return [*events, ended]

    async def _remember(self, room: _PendingCompletions, news: int) -> None:
        """Record what was delivered, merged with what other relays recorded."""
        for _ in range(5):
            ended = room.ended | news
            body: dict[str, object] = {"run": room.flow_ref.run, "ended": to_text(ended)}
            if room.closed:
                body["closed"] = True
            document = Document(_document(room.flow_ref), room.tenant, "delivery", body)
            (result,) = await self.documents.put([(document, room.version)])
            if isinstance(result, Written):
                room.ended, room.version = ended, result.version
                room.well, room.bad = room.well & ~ended, room.bad & ~ended
                return
            await self._read([room])
        self.troubled(f"what was delivered to {room.flow_ref.room} could not be recorded; it may be delivered again")
        room.ended |= news


def _document(flow_ref: FlowRef) -> str:
    return document_of(flow_ref.run, flow_ref.work, flow_ref.shard)
