"""Gives jobs to pilots: one version-checked write a claim, many claims a round trip.

Each server looks after the jobs in its own slots. For every lane (tenant, resource class, priority, owner) it keeps a window of candidates
with their versions, and a cursor that moves past what was taken, so that two looks never offer the same job. Pilots' requests wait;
all that can be answered at one moment are written in one bulk. A window goes back to the start of its lane only after the
store has had time to show what was written.

A request that finds nothing for a while is served from other servers' slots, from the far end of their lanes, where their owners
come last. So two servers hardly ever want the same job, and where they do the version check decides.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.domain.jobs.claim import claim, claimable
from holdfast.domain.jobs.job_document import HIGHEST_PRIORITY, JobDocument, Lane, State, lane_named, lane_of
from holdfast.domain.jobs.lifecycle import Refused
from holdfast.domain.jobs.resources import Resources, class_may_fit, fits, less
from holdfast.domain.jobs.slots import SLOTS, slot_of
from holdfast.ports.clock import Clock, Ids
from holdfast.ports.errors import PortError
from holdfast.ports.job_store import JobQuery, JobStore, Stored
from holdfast.services.release_claims import release_wish
from holdfast.services.write_checked import Settled, Wish, Writer

REMEMBERED_PILOTS = 20_000


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """How the desk works; the defaults suit a store that shows writes after one second."""

    window: int = 1000
    """Candidates read at once."""
    low_water: int = 1000
    """With fewer left the next page is read ahead."""
    bulk: int = 500
    """Claims in one write."""
    flights: int = 2
    """Writes under way at once."""
    gather: float = 0.002
    """How long to wait for more requests before writing, in seconds."""
    idle: float = 0.25
    """How often to look at the waiting requests when nothing else happens, in seconds."""
    settle: float = 1.2
    """How long until the store surely shows what was written, in seconds."""
    foreign_after: float = 1.0
    """A request that found nothing for so long is served from other servers' slots too."""
    foreign_age: float = 3.0
    """Jobs of other servers' slots are left to them for so long, in seconds."""
    foreign_window: int = 200
    hand_over: float = 4.0
    """Slots that we gain are left alone for so long: their old owner may still write, and searches lag."""
    look_again: float = 10.0
    """How often to look for new lanes while those known have work, in seconds."""
    look: int = 64
    """How many candidates of a lane are tried for one that fits."""


@dataclass(slots=True, eq=False)
class Request:
    """A pilot that waits for work."""

    pilot: str
    host: str
    tenant: str
    free: Resources
    most: int
    batch: int
    since: float
    answer: asyncio.Future[list[Stored]]
    busy: bool = False


@dataclass(slots=True, eq=False)
class _Window:
    """Candidates of one lane, in order, and where the next page begins."""

    lane: Lane
    foreign: bool
    jobs: deque[Stored] = field(default_factory=deque)
    cursor: str | None = None
    reading: bool = False
    ended_at: float | None = None
    """When the end of the lane was reached; None while there is more to read."""
    served: int = 0
    """The desk's count at which this window was served last; the lowest goes first among equals."""


def _urgency(one: tuple[int, int, _Window]) -> tuple[int, int]:
    return one[:2]


@dataclass(slots=True)
class DeskTally:
    """What the desk has done, for metrics and benchmarks."""

    granted: int = 0
    lost: int = 0
    """Claims that were written but someone else's write stood."""
    bulks: int = 0
    pages: int = 0
    looks: int = 0


class ClaimJobs:
    """The claim desk of one server."""

    def __init__(
        self, store: JobStore, writer: Writer, clock: Clock, ids: Ids, settings: ClaimSettings | None = None
    ) -> None:
        self.store = store
        self.writer = writer
        self.clock = clock
        self.ids = ids
        self.settings = settings or ClaimSettings()
        self.tally = DeskTally()
        self._slots: frozenset[int] | None = None
        self._gaining: tuple[frozenset[int], float] | None = None
        self._waiting: list[Request] = []
        self._windows: dict[tuple[str, bool], _Window] = {}
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._wake = asyncio.Event()
        self._flying = 0
        self._looked_at = {False: -1e9, True: -1e9}
        self._looking = {False: False, True: False}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._hungry: OrderedDict[str, float] = OrderedDict()
        """Since when each pilot has asked in vain."""

    # -- asked by pilots ---------------------------------------------------------------------------------------

    async def claim(
        self, *, pilot: str, host: str, tenant: str, free: Resources, most: int, wait: float, batch: int = 1
    ) -> list[Stored]:
        """Wait until there is work that fits, at most so long; perhaps none. Cancelled, it gives back what it was given.

        What is given fits into what is free all at once; with a batch, so often over, one after another.
        """
        loop = asyncio.get_running_loop()
        # One that asks often and briefly is hungry since its first request in vain, not since its last.
        since = self._hungry.setdefault(pilot, self.clock.monotonic())
        if len(self._hungry) > REMEMBERED_PILOTS:
            self._hungry.popitem(last=False)
        request = Request(pilot, host, tenant, free, most, batch, since, loop.create_future())
        self._waiting.append(request)
        self._wake.set()
        try:
            done, _ = await asyncio.wait({request.answer}, timeout=wait)
            while not done and request.busy:  # its claims are being written: they must not be lost
                done, _ = await asyncio.wait({request.answer}, timeout=wait)
            return request.answer.result() if done else []
        except asyncio.CancelledError:
            answer = request.answer
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                # Granted at the very moment at which the caller went away.
                self._spawn(self._give_back(answer.result()))
            raise
        finally:
            if not request.answer.done():
                request.answer.cancel()
            if request in self._waiting:
                self._waiting.remove(request)

    def dismiss(self) -> None:
        """Answer everyone who waits with nothing: the server stops. Claims being written are still handed over."""
        for request in [one for one in self._waiting if not one.busy]:
            self._waiting.remove(request)
            if not request.answer.done():
                request.answer.set_result([])

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def own(self, slots: frozenset[int]) -> None:
        """These slots are ours: those lost are let go at once, those gained are taken over a little later."""
        if self._slots is None:
            self._take_over(slots)
        elif self._gaining is None or self._gaining[0] != slots:
            self._gaining = (slots, self.clock.monotonic() + self.settings.hand_over)
            if not self._slots <= slots:
                self._take_over(self._slots & slots)

    def _take_over(self, slots: frozenset[int]) -> None:
        """Windows are read anew, since they were cut by the old slots."""
        if slots == self._slots:
            return
        self._slots = slots
        for key in [key for key in self._windows if not key[1]]:
            del self._windows[key]
        self._looked_at[False] = -1e9
        self._wake.set()

    def offer(self, jobs: Iterable[Stored]) -> None:
        """Jobs that were just written here: a waiting pilot gets them without any search.

        Jobs of other servers' slots only as far as someone waits for them now: their owners cannot know of them yet.
        """
        room: dict[str, int] = {}
        for request in self._waiting:
            if not request.busy:
                room[request.tenant] = room.get(request.tenant, 0) + request.most
        for stored in jobs:
            lane = lane_of(stored.document)
            mine = self._owns(stored.document.id)
            if mine or room.get(lane.tenant, 0) > 0:
                window = self._window(lane, foreign=False)
                if lane.tenant in room and len(window.jobs) < self.settings.window:
                    window.jobs.append(stored)
                    room[lane.tenant] -= 1
        if room:
            self._wake.set()

    def notice(self, stored: Stored) -> None:
        """A document was written here: if the job is to be had again, a waiting pilot may have it at once."""
        document = stored.document
        if document.state is State.AVAILABLE and document.attempt > 0:
            self._taken.pop(document.id, None)
            if not document.holders and document.not_before <= self.clock.now():
                self.offer([stored])

    # -- the loop ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve requests until cancelled."""
        try:
            while True:
                await self._wait_for_work()
                if self._waiting and self._flying < self.settings.flights:
                    self._serve()
        finally:
            for task in self._tasks:
                task.cancel()

    async def _wait_for_work(self) -> None:
        idle = self.settings.idle if self._waiting else 5.0
        try:
            async with asyncio.timeout(idle):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        if self._waiting and self.settings.gather:
            await asyncio.sleep(self.settings.gather)

    def _serve(self) -> None:
        now = self.clock.monotonic()
        self._forget_taken(now)
        if self._gaining is not None and now >= self._gaining[1]:
            slots, self._gaining = self._gaining[0], None
            self._take_over(slots)
        batch: list[tuple[Request, Stored]] = []
        for request in self._waiting:
            if request.busy or request.answer.done():
                continue
            picked = self._pick(request, now, self.settings.bulk - len(batch))
            if picked:
                request.busy = True
                batch += [(request, stored) for stored in picked]
            if len(batch) >= self.settings.bulk:
                break
        if batch:
            self._flying += 1
            self._spawn(self._commit(batch))
        self._read_ahead(now)

    # -- choosing ----------------------------------------------------------------------------------------------

    def _pick(self, request: Request, now: float, most: int) -> list[Stored]:
        picked: list[Stored] = []
        most = min(most, request.most)
        foreign = now - request.since >= self.settings.foreign_after
        for _ in range(request.batch):
            free = request.free
            before = len(picked)
            while len(picked) < most and (stored := self._next(request.tenant, free, foreign=foreign)):
                picked.append(stored)
                free = less(free, stored.document.resources)
            if len(picked) == before or len(picked) == most:
                break
        return picked

    def _next(self, tenant: str, free: Resources, *, foreign: bool) -> Stored | None:
        """The best candidate: highest priority first, then the lane that was served longest ago."""
        awaited = -HIGHEST_PRIORITY - 1
        fed: list[tuple[int, int, _Window]] = []
        for window in self._windows.values():
            lane = window.lane
            if lane.tenant != tenant or (window.foreign and not foreign) or not (window.jobs or window.reading):
                continue
            if not class_may_fit(lane.resource_class, free):
                continue
            if window.jobs:
                fed.append((-lane.priority, window.served, window))
            elif not window.foreign:
                awaited = max(awaited, lane.priority)
        while fed:
            best = min(fed, key=_urgency)
            if awaited > best[2].lane.priority:
                return None  # something more urgent is just being read
            if (stored := self._take(best[2], free)) is not None:
                self._turn += 1
                best[2].served = self._turn
                return stored
            fed.remove(best)  # nothing in it fits after all
        return None

    def _take(self, window: _Window, free: Resources) -> Stored | None:
        wall = self.clock.now()
        for _ in range(min(self.settings.look, len(window.jobs))):
            stored = window.jobs.popleft()
            document = stored.document
            if document.id in self._taken or not claimable(document, wall):
                continue
            if fits(document.resources, free):
                self._taken[document.id] = self.clock.monotonic()
                return stored
            window.jobs.append(stored)
        return None

    # -- writing -----------------------------------------------------------------------------------------------

    async def _commit(self, batch: Sequence[tuple[Request, Stored]]) -> None:
        try:
            wishes = [self._wish(request, stored) for request, stored in batch]
            self.tally.bulks += 1
            answers = await self.writer.write(wishes)
            granted: dict[int, list[Stored]] = {}
            for (request, _), answer in zip(batch, answers, strict=True):
                if isinstance(answer, Settled):
                    granted.setdefault(id(request), []).append(answer.stored)
                else:
                    self.tally.lost += 1
            for request in {id(request): request for request, _ in batch}.values():
                jobs = granted.get(id(request), [])
                self.tally.granted += len(jobs)
                if request.answer.done():  # its caller went away meanwhile: nobody knows of these claims
                    await self._give_back(jobs)
                elif jobs:
                    self._waiting.remove(request)
                    self._hungry.pop(request.pilot, None)
                    request.answer.set_result(jobs)
        except Exception as error:  # the requests must not hang on a bug
            for request, _ in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
        finally:
            for request, _ in batch:
                request.busy = False
            self._flying -= 1
            self._wake.set()

    def _wish(self, request: Request, stored: Stored) -> Wish:
        name = self.ids.claim()
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | Refused:
            return claim(document, claim_id=name, pilot=request.pilot, host=request.host, now=now)

        def mine(document: JobDocument) -> bool:
            return document.claim is not None and document.claim.id == name

        return Wish(stored.document.id, decide, mine, known=stored, once=True)

    async def _give_back(self, jobs: Sequence[Stored]) -> None:
        why = "the pilot's request was gone before its answer"
        now = self.clock.now()
        await self.writer.write(
            [release_wish(one, by="server", reason=why, overlap_possible=False, now=now) for one in jobs]
        )

    # -- reading -----------------------------------------------------------------------------------------------

    def _read_ahead(self, now: float) -> None:
        """Fill windows that run low, and look for lanes we do not know while someone waits in vain."""
        tenants = {request.tenant for request in self._waiting}
        for window in list(self._windows.values()):
            if window.reading or len(window.jobs) >= self.settings.low_water or window.lane.tenant not in tenants:
                continue
            if window.ended_at is not None and now - window.ended_at < self.settings.settle:
                continue
            if window.ended_at is not None and not window.jobs:
                # The whole lane was seen: the directory says when there is something in it again.
                del self._windows[(str(window.lane), window.foreign)]
                continue
            if window.ended_at is None:
                window.reading = True
                self._spawn(self._read(window))
        unmet = [request for request in self._waiting if not request.busy]
        fed = {window.lane.tenant for window in self._windows.values() if window.jobs or window.ended_at is None}
        dry = any(request.tenant not in fed for request in unmet)
        pause = self.settings.settle if dry else self.settings.look_again
        # Also while everyone is served: a lane that we do not know may be more urgent than those that we do.
        if self._waiting and now - self._looked_at[False] >= pause and not self._looking[False]:
            self._looking[False] = True
            self._spawn(self._look(foreign=False))
        old = any(now - request.since >= self.settings.foreign_after for request in unmet)
        all_mine = self._slots is None or len(self._slots) == SLOTS
        if old and not all_mine and now - self._looked_at[True] >= self.settings.settle and not self._looking[True]:
            self._looking[True] = True
            self._spawn(self._look(foreign=True))

    async def _look(self, *, foreign: bool) -> None:
        """Which lanes have jobs at all."""
        self.tally.looks += 1
        try:
            lanes = await self.store.count(self._query(foreign=foreign), by="lane")
            for name in lanes:
                self._window(lane_named(name), foreign=foreign)
        except PortError:
            pass  # asked again after the settle time; the request keeps waiting
        finally:
            self._looked_at[foreign] = self.clock.monotonic()
            self._looking[foreign] = False
            self._wake.set()

    async def _read(self, window: _Window) -> None:
        self.tally.pages += 1
        slots = self._slots
        try:
            query = self._query(foreign=window.foreign, lane=str(window.lane))
            sort, limit = ("-rank", self.settings.foreign_window) if window.foreign else ("rank", self.settings.window)
            page = await self.store.search(query, sort=sort, limit=limit, cursor=window.cursor)
            if self._slots is not slots and not window.foreign:
                return
            window.jobs.extend(stored for stored in page.jobs if stored.document.id not in self._taken)
            window.cursor = page.cursor
            window.ended_at = self.clock.monotonic() if page.cursor is None else None
        except PortError:
            window.cursor, window.ended_at = None, self.clock.monotonic()
        finally:
            window.reading = False
            self._wake.set()

    def _query(self, *, foreign: bool, lane: str | None = None) -> JobQuery:
        slots = self._slots if not foreign and self._slots is not None and len(self._slots) < SLOTS else None
        at_most = {"not_before": self.clock.now()}
        if foreign:
            at_most["changed"] = self.clock.now() - int(1000 * self.settings.foreign_age)
        return JobQuery(
            states=frozenset({State.AVAILABLE}),
            anyof={"lane": [lane]} if lane else {},
            at_most=at_most,
            held=False,
            slots=slots,
        )

    def _window(self, lane: Lane, *, foreign: bool) -> _Window:
        key = (str(lane), foreign)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(lane, foreign, served=self._turn)
        return window

    def _owns(self, job: str) -> bool:
        return self._slots is None or slot_of(job) in self._slots

    def _forget_taken(self, now: float) -> None:
        """What was taken long ago is shown as taken by the store itself."""
        while self._taken:
            job, at = next(iter(self._taken.items()))
            if now - at < 3 * self.settings.settle:
                return
            del self._taken[job]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
