"""Carries the ends of cases' jobs up to the cases: in batches, at least once, and remembered.

Ended jobs are found by search over a window that overlaps the last one. What a shard was told of is on its delivery slip, a bitmap that only relays
write, after the shard was told: who dies between the two tells it again, which is harmless. Any number of relays may run; each finds what
the others delivered on the slip.

A single job's end is told at once. Of more jobs, when all have ended, when there are many, or after a while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.domain.flows.elements import from_text, to_text
from holdfast.domain.flows.events import JobsEnded
from holdfast.domain.flows.shard_run import BatchEnded
from holdfast.domain.jobs.job_document import JobDocument, Tie
from holdfast.ports.clock import Clock
from holdfast.ports.errors import NotFound, PortError
from holdfast.ports.flow_engine import FlowEngine
from holdfast.ports.job_store import JobQuery, JobStore, Stored, Version, Written
from holdfast.ports.slip_store import Slip, SlipStore
from holdfast.services.flow_ends import FlowEnds, ended_well, why
from holdfast.services.submit_flow_jobs import slip_of

OVERLAP = 5_000
"""Milliseconds that each look goes back: clocks differ and searches lag."""
DEEP_OVERLAP = 120_000
DEEP_EVERY = 60.0
"""Seconds between looks that go back further, for what became visible late."""
PAGE = 5000
ROOMS = 20_000
MARK = "relay:mark"
AT_ONCE = 32


@dataclass(slots=True, eq=False)
class _Room:
    """The jobs that one shard, or a case for one round, looks after; and what it is to be told."""

    tie: Tie
    tenant: str
    of: int
    ended: int = 0
    """What the slip says was delivered."""
    version: Version | None = None
    read: bool = False
    closed: bool = False
    """There was nobody to be told any more."""
    well: int = 0
    bad: int = 0
    reason: str = ""
    only: JobDocument | None = None
    """The end of a round's only job."""
    since: float = 0.0
    oldest: int = 0
    """When the first of the ends that it is still to be told of was written."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def news(self) -> int:
        return (self.well | self.bad) & ~self.ended

    def add(self, document: JobDocument, tie: Tie, now: float) -> None:
        bit = 1 << tie.place
        if (self.ended | self.well | self.bad) & bit:
            return
        if not self.news:
            self.since = now
            self.oldest = document.changed
        self.oldest = min(self.oldest, document.changed)
        if ended_well(document):
            self.well |= bit
        else:
            self.bad |= bit
            self.reason = self.reason or why(document)
        self.of = max(self.of, tie.of)
        if tie.of == 1:
            self.only = document


@dataclass(slots=True)
class RelayEnds:
    """The service: `run` looks through windows (a keeper does), `run_hints` tells of what was seen here (a server does)."""

    store: JobStore
    slips: SlipStore
    engine: FlowEngine
    ends: FlowEnds
    clock: Clock
    every: float = 0.5
    patience: float = 30.0
    """Seconds that a batch of ends may wait for more."""
    many: int = 500
    troubled: Callable[[str], None] = lambda _text: None
    told: int = 0
    """Signals sent."""
    delivered: int = 0
    undeliverable: int = 0
    _rooms: OrderedDict[str, _Room] = field(default_factory=OrderedDict)
    _hinting: bool = False
    _hinted: list[JobDocument] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _look: asyncio.Event = field(default_factory=asyncio.Event)
    _from: int = 0
    _deep: float = -1e9

    def notice(self, stored: Stored) -> None:
        """A document was written here."""
        document = stored.document
        tie = document.tie
        if tie is None or not tie.of or not document.final:
            return
        if tie.of == 1 and self._hinting:
            self._hinted.append(document)
            self._wake.set()
        else:
            self._look.set()

    async def run_hints(self) -> None:
        """Tell of the ends of single jobs that were written here, at once."""
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
        """Look through windows, for ever; the first begins where the last relay has told everything."""
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
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), self.every)

    async def look(self) -> None:
        """Find what has ended since the last look, and tell what is due."""
        now = self.clock.monotonic()
        deep = now - self._deep > DEEP_EVERY
        since = max(0, self._from - (DEEP_OVERLAP if deep else OVERLAP))
        query = JobQuery(at_least={"ended": since})
        cursor: str | None = None
        newest = self._from
        while True:
            page = await self.store.search(query, sort="ended", limit=PAGE, cursor=cursor)
            documents = [one.document for one in page.jobs]
            newest = max([newest, *(one.changed for one in documents)])
            rooms = self._sort_in(documents)
            await self._tell_all([room for room in rooms if self._due(room)])
            cursor = page.cursor
            if cursor is None:
                break
        # A server whose clock is ahead must not make us pass by what the others write.
        self._from = max(self._from, min(newest, self.clock.now()))
        await self._tell_all([room for room in self._rooms.values() if room.news and self._due(room)])
        if deep:
            self._deep = now
            await self._mark()

    async def _marked(self) -> int:
        """The time up to which everything was told, by whomever; 0: from the beginning."""
        stored = (await self.slips.get([MARK])).get(MARK)
        return int(str(stored.slip.body["from"])) if stored is not None else 0

    async def _mark(self) -> None:
        """Write down how far everything was told; if another relay is ahead, it stays ahead."""
        untold = [room.oldest for room in self._rooms.values() if room.news and not room.closed]
        reached = min([self._from, *untold])
        stored = (await self.slips.get([MARK])).get(MARK)
        if stored is None or int(str(stored.slip.body["from"])) < reached:
            slip = Slip(MARK, "", "relay", {"from": reached})
            await self.slips.put([(slip, stored.version if stored is not None else None)])

    def _sort_in(self, documents: Sequence[JobDocument]) -> list[_Room]:
        """The rooms of some ended jobs, with the ends in them."""
        now = self.clock.monotonic()
        rooms: dict[str, _Room] = {}
        for document in documents:
            tie = document.tie
            if tie is None or not tie.of:
                continue
            room = self._rooms.get(tie.room)
            if room is None:
                room = self._rooms[tie.room] = _Room(tie, document.tenant, tie.of)
            self._rooms.move_to_end(tie.room)
            room.add(document, tie, now)
            rooms[tie.room] = room
        while len(self._rooms) > ROOMS and not next(iter(self._rooms.values())).news:
            self._rooms.popitem(last=False)
        return list(rooms.values())

    def _due(self, room: _Room) -> bool:
        waited = self.clock.monotonic() - room.since
        if not room.news or room.closed:
            return False
        if room.of == 1:
            return True
        known = (room.ended | room.well | room.bad).bit_count()
        return known >= room.of or room.news.bit_count() >= self.many or waited >= self.patience

    async def _tell_all(self, rooms: Sequence[_Room]) -> None:
        rooms = [room for room in rooms if room.news and not room.closed]
        await self._read([room for room in rooms if not room.read])
        for start in range(0, len(rooms), AT_ONCE):
            some = rooms[start : start + AT_ONCE]
            failures = await asyncio.gather(*(self._tell(room) for room in some), return_exceptions=True)
            for failure in failures:
                if isinstance(failure, PortError):
                    self.troubled(str(failure))
                elif failure is not None:
                    raise failure

    async def _read(self, rooms: Sequence[_Room]) -> None:
        """What was delivered before, by whomever."""
        names = {_slip(room.tie): room for room in rooms}
        found = await self.slips.get(list(names)) if names else {}
        for name, room in names.items():
            stored = found.get(name)
            if stored is not None:
                room.ended |= from_text(str(stored.slip.body["ended"]))
                room.version = stored.version
                room.closed = bool(stored.slip.body.get("closed"))
            room.read = True

    async def _tell(self, room: _Room) -> None:
        async with room.lock:  # one signal in flight a shard
            news = room.news
            if not news or room.closed:
                return
            well, bad, tie = room.well & news, room.bad & news, room.tie
            try:
                if tie.shard >= 0:
                    ended = BatchEnded(well, bad, 0, room.reason if bad else "")
                    await self.engine.tell_shard(tie.case, tie.work, tie.shard, [ended])
                else:
                    await self.engine.tell_case(tie.case, [await self._for_case(room, well, bad)])
                self.told += 1
                self.delivered += news.bit_count()
            except NotFound:
                room.closed = True
                self.undeliverable += news.bit_count()
            await self._remember(room, news)

    async def _for_case(self, room: _Room, well: int, bad: int) -> JobsEnded:
        facts = await self.ends.facts(room.only) if room.only is not None else {}
        return JobsEnded(
            self.clock.now(), room.tie.work, well, bad, 0, facts.get("exit_code"), facts.get("result"),
            room.reason if bad else "",
        )  # fmt: skip

    async def _remember(self, room: _Room, news: int) -> None:
        """Write what was delivered; who wrote before us delivered something too."""
        for _ in range(5):
            ended = room.ended | news
            body: dict[str, object] = {"case": room.tie.case, "ended": to_text(ended)}
            if room.closed:
                body["closed"] = True
            slip = Slip(_slip(room.tie), room.tenant, "delivery", body)
            (result,) = await self.slips.put([(slip, room.version)])
            if isinstance(result, Written):
                room.ended, room.version = ended, result.version
                room.well, room.bad = room.well & ~ended, room.bad & ~ended
                return
            await self._read([room])
        self.troubled(f"what was delivered to {room.tie.room} could not be written down; it may be told again")
        room.ended |= news


def _slip(tie: Tie) -> str:
    return slip_of(tie.case, tie.work, tie.shard)
