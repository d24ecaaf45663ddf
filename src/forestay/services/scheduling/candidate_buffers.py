"""The candidate buffers of one server: for every queue lane the next jobs with their versions, read ahead.

A buffer is a hint. Its cursor moves past taken jobs, so that two reads never offer the same job; it returns to the start
of its lane only after the store has had time to show recent writes. Jobs of other servers' hash slots are taken from the
far end of their lanes, which their owners reach last: so two servers hardly ever choose the same job, and where they do the
version check decides.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.jobs.claim import claimable
from forestay.domain.jobs.hash_slots import SLOTS, hash_slot_of
from forestay.domain.jobs.job_document import HIGHEST_PRIORITY, JobDocument, QueueLane, State, lane_named, lane_of
from forestay.domain.jobs.resources import Resources, class_may_fit
from forestay.domain.scheduling.host_health import SlotTurn
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.claim_settings import ClaimSettings, ClaimTally
from forestay.services.scheduling.fair_shares import FairShares
from forestay.services.scheduling.job_eligibility import JobEligibility
from forestay.services.scheduling.job_matcher import JobMatcher
from forestay.services.shared.background_tasks import BackgroundTasks

LEAST = 50
"""The least number of candidates that a search of a lane reads."""


class _Asking(NamedTuple):
    """One pass over the candidates for a pilot that asks for work."""

    request: ClaimRequest
    free: Resources
    """What is left of its free resources."""
    foreign: bool
    turns: Callable[[JobDocument], SlotTurn] | None = None
    """When each job may get a slot of the host; None: all of them now."""
    turn: SlotTurn = SlotTurn.NOW
    """The jobs that are given in this pass."""

    def gives(self, document: JobDocument) -> bool:
        return self.turns is None or self.turns(document) <= self.turn


def _urgency(lane: tuple[int, bool, int, LaneBuffer]) -> tuple[int, bool, int]:
    return lane[:3]


class CandidateSignal:
    """Wakes claim dispatchers: there may be more candidates.

    It connects the services that make jobs available (hosts, suspensions) with those that give them, which do not know each other.
    """

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._anew = False

    def wake(self) -> None:
        self._event.set()

    def look_anew(self) -> None:
        """Search skipped jobs at once, because they may be available now."""
        self._anew = True
        self._event.set()

    def take_anew(self) -> bool:
        """Whether that was requested since the last call."""
        anew, self._anew = self._anew, False
        return anew

    async def wait(self, seconds: float) -> None:
        """Wait for a signal, at most for `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


class CandidateBuffers:
    """The candidate buffers of one server."""

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        settings: ClaimSettings,
        tally: ClaimTally,
        signal: CandidateSignal,
        eligibility: JobEligibility,
        match: JobMatcher | None = None,
        shares: FairShares | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.settings = settings
        self.tally = tally
        self.signal = signal
        self.eligibility = eligibility
        self.shares = shares
        self.match = match
        """Weighs the location of data; None: it is not considered."""
        self._data_first = 0
        self._slots: frozenset[int] | None = None
        self._fallback: frozenset[int] | None = None
        self._far = False
        self._gaining: tuple[frozenset[int], float] | None = None
        self._buffers: dict[tuple[str, bool], LaneBuffer] = {}
        self._taken: OrderedDict[str, float] = OrderedDict()
        self._looked_at = {False: -1e9, True: -1e9}
        self._looking = {False: False, True: False}
        self._background = BackgroundTasks()
        self._turn = 0
        self._leftovers = False
        """Whether, since the last search, a job was given that is given only when no other job waits."""

    def stop(self) -> None:
        self._background.stop()

    @property
    def slots_served(self) -> int:
        """The number of hash slots served here now; fewer than our share for a while after a server joined or left."""
        return SLOTS if self._slots is None else len(self._slots)

    def assign_hash_slots(self, slots: frozenset[int], fallback: frozenset[int] | None) -> None:
        """Set our hash slots: lost ones are released at once, gained ones are taken over a little later.

        Of the slots of others our fallback slots come first, so that two servers without own jobs rarely choose the same job.
        """
        self._fallback = fallback
        if self._slots is None:
            self._take_over(slots)
        elif self._gaining is None or self._gaining[0] != slots:
            self._gaining = (slots, self.clock.monotonic() + self.settings.hand_over)
            if not self._slots <= slots:
                self._take_over(self._slots & slots)

    def _take_over(self, slots: frozenset[int]) -> None:
        """Read the candidate buffers again, since they were selected by the old slots."""
        if slots == self._slots:
            return
        self._slots = slots
        for key in [key for key in self._buffers if not key[1]]:
            del self._buffers[key]
        self._looked_at[False] = -1e9
        self.signal.wake()

    def promote_pending(self, now: float) -> None:
        """Take over slots that are due; forget taken jobs that the store itself shows as taken by now."""
        if self._gaining is not None and now >= self._gaining[1]:
            slots, self._gaining = self._gaining[0], None
            self._take_over(slots)
        while self._taken:
            job, at = next(iter(self._taken.items()))
            if now - at < 3 * self.settings.settle:
                return
            del self._taken[job]

    # -- giving ------------------------------------------------------------------------------------------------

    def offer(self, jobs: Iterable[Stored], room: dict[str, int]) -> None:
        """Add jobs that were just written here; `room`: how many each tenant's pilots wait for.

        Jobs of other servers' slots are only for pilots without a job of our own slots: their owners cannot know these jobs yet,
        and for a while will not know that they are taken.
        """
        fed = {buffer.lane.tenant for buffer in self._buffers.values() if buffer.jobs}
        others: list[Stored] = []
        for stored in jobs:
            if self._owns(stored.document.id):
                self._append(stored, room)
            else:
                others.append(stored)
        for stored in others:
            queue = lane_of(stored.document).tenant
            if queue not in fed and room.get(queue, 0) > 0:
                self._append(stored, room)

    def _append(self, stored: Stored, room: dict[str, int]) -> None:
        lane = lane_of(stored.document)
        if lane.tenant in room:
            buffer = self._buffer(lane, foreign=False)
            if len(buffer.jobs) < self.settings.buffer:
                buffer.jobs.append(stored)
                if self.match is not None and self.match.tenants:
                    self.match.offer(stored)
                room[lane.tenant] -= 1

    def free(self, job: str) -> None:
        """Make a job available again."""
        self._taken.pop(job, None)

    def put_back(self, stored: Stored) -> None:
        """Put a candidate that was not claimed back to the front of its lane."""
        document = stored.document
        self._taken.pop(document.id, None)
        lane = str(lane_of(document))
        buffer = self._buffers.get((lane, False)) or self._buffers.get((lane, True))
        if buffer is None:
            return  # found again by a search
        if document.id in buffer.granted:
            buffer.granted.discard(document.id)
        else:
            buffer.jobs.appendleft(stored)

    def next(
        self,
        request: ClaimRequest,
        free: Resources,
        *,
        foreign: bool,
        turns: Callable[[JobDocument], SlotTurn] | None = None,
    ) -> Stored | None:
        """The best candidate for what is left free: highest priority first, then data where the pilot runs, then our own slots, then the lane served longest ago."""
        match = self.match
        if match is None or not match.tenants or not match.weighs(request.queue):
            match = None
        for turn in (SlotTurn.NOW,) if turns is None else (SlotTurn.NOW, SlotTurn.AFTER_OTHERS):
            asking = _Asking(request, free, foreign, turns, turn)
            stored = self._next(asking, match, last=match is None)
            if stored is None and match is not None:
                # There is nothing else for this pilot: it is better to run jobs kept for busy pilots than to keep them.
                stored = self._next(asking, match, last=True)
            if stored is not None:
                self._leftovers |= turn is SlotTurn.AFTER_OTHERS
                return stored
        return None

    def _next(self, asking: _Asking, match: JobMatcher | None, *, last: bool) -> Stored | None:
        request, free, foreign = asking.request, asking.free, asking.foreign
        queue = request.queue
        awaited = -HIGHEST_PRIORITY - 1
        fed: list[tuple[int, bool, int, LaneBuffer]] = []
        for buffer in self._buffers.values():
            lane = buffer.lane
            if lane.tenant != queue or (buffer.foreign and not foreign) or not (buffer.jobs or buffer.reading):
                continue
            if request.owner and lane.owner != request.owner:
                continue
            if not class_may_fit(lane.resource_class, free) or self.eligibility.closed(lane):
                continue
            if buffer.jobs:
                fed.append((-lane.priority, buffer.foreign, buffer.served, buffer))
            elif not buffer.foreign:
                awaited = max(awaited, lane.priority)
        if self.shares is not None and self.shares.active:
            fed = self._by_share(queue, fed)
        while fed:
            best = min(fed, key=_urgency)
            buffer = best[3]
            if awaited > buffer.lane.priority:
                return None  # a more urgent lane is being read
            stored = self._nearest(fed, best, asking, match) if match is not None else None
            if stored is not None:
                return stored
            if (stored := self._take(buffer, asking, match, last=last)) is not None:
                self._serve(buffer)
                return stored
            fed.remove(best)  # no candidate in it fits after all
        return None

    def _by_share(
        self, queue: str, fed: list[tuple[int, bool, int, LaneBuffer]]
    ) -> list[tuple[int, bool, int, LaneBuffer]]:
        """The lanes with their places by fair share, where the tenant has shares, instead of the time of their last turn."""
        shares = self.shares.of(queue) if self.shares is not None else None
        if shares is None:
            return fed
        fed.sort(key=lambda entry: (*entry[:2], shares.pressure(entry[3].lane.owner), entry[2]))
        return [(urgent, foreign, place, buffer) for place, (urgent, foreign, _, buffer) in enumerate(fed)]

    def _serve(self, buffer: LaneBuffer) -> None:
        self._turn += 1
        buffer.served = self._turn

    def _nearest(
        self,
        fed: list[tuple[int, bool, int, LaneBuffer]],
        best: tuple[int, bool, int, LaneBuffer],
        asking: _Asking,
        match: JobMatcher,
    ) -> Stored | None:
        """A candidate of the most urgent lanes whose data are where the pilot runs; the lane that is next in turn comes first."""
        turn = self._data_first >= self.settings.data_first
        wall = self.clock.now()

        def fit(stored: Stored) -> bool:
            document = stored.document
            if document.id in self._taken or not claimable(document, wall):
                return False
            return self._may_have(document, asking, wall)

        for lane in (
            [best] if turn else sorted((other_lane for other_lane in fed if other_lane[0] == best[0]), key=_urgency)
        ):
            buffer = lane[3]
            stored = match.near(str(buffer.lane), asking.request.queue, asking.request.pilot, fit)
            if stored is not None:
                self._data_first = 0 if lane is best else self._data_first + 1
                self._taken[stored.document.id] = self.clock.monotonic()
                buffer.granted.add(stored.document.id)
                match.given(stored.document, asking.request.pilot, near=True)
                self._serve(buffer)
                return stored
        self._data_first = 0
        return None

    def _may_have(self, document: JobDocument, asking: _Asking, wall: int) -> bool:
        """Whether a claimable job is given in this pass."""
        return self.eligibility.may_have(document, asking.request, asking.free, wall) and asking.gives(document)

    def has_none_for(self, tenant: str, free: Resources, owner: str = "") -> bool:
        """Whether nothing is queued that someone with so much free, perhaps of one owner, should get before a job that comes now.

        This is known only while lanes are searched regularly, as for pilots that wait without success; otherwise False.
        """
        self._look_anew_if_asked()
        if self._looking[False] or self.clock.monotonic() - self._looked_at[False] > 2 * self.settings.settle:
            return False
        for buffer in self._buffers.values():
            more = buffer.jobs or buffer.reading or (buffer.ended_at is None and not buffer.foreign)
            mine = buffer.lane.tenant == tenant and (not owner or buffer.lane.owner == owner)
            if (
                more
                and mine
                and class_may_fit(buffer.lane.resource_class, free)
                and not self.eligibility.closed(buffer.lane)
            ):
                return False
        return True

    def has_some_for(self, tenant: str, free: Resources) -> bool:
        """Whether candidates are at hand for someone with so much free."""
        return any(
            buffer.jobs and buffer.lane.tenant == tenant and class_may_fit(buffer.lane.resource_class, free)
            for buffer in self._buffers.values()
            if not buffer.foreign and not self.eligibility.closed(buffer.lane)
        )

    def _take(self, buffer: LaneBuffer, asking: _Asking, match: JobMatcher | None, *, last: bool) -> Stored | None:
        pilot = asking.request.pilot
        wall = self.clock.now()
        for _ in range(min(self.settings.look, len(buffer.jobs))):
            stored = buffer.jobs.popleft()
            document = stored.document
            if document.id in buffer.granted:
                buffer.granted.discard(document.id)
                continue
            if document.id in self._taken or not claimable(document, wall):
                continue
            if self._may_have(document, asking, wall) and (
                match is None or not match.held_back(document, pilot, last=last)
            ):
                self._taken[document.id] = self.clock.monotonic()
                buffer.unfit = 0
                if match is not None:
                    match.given(document, pilot, near=False)
                return stored
            buffer.jobs.append(stored)
            buffer.unfit += 1
        return None

    # -- reading -----------------------------------------------------------------------------------------------

    def refill(self, now: float, *, waiting: set[str], unmet: set[str], hunger: float) -> None:
        """Fill candidate buffers that run low, and search for unknown lanes.

        `waiting` are the tenants with waiting pilots, `unmet` those of them that got nothing; `hunger` is for how
        long the longest waiting pilot has found nothing.
        """
        self._look_anew_if_asked()
        self._far = hunger >= self.settings.far_after
        foreign = hunger >= self.settings.foreign_after
        for buffer in self._low(waiting, now):
            buffer.reading = True
            self._background.begin(self._read(buffer))
        fed = {
            buffer.lane.tenant
            for buffer in self._buffers.values()
            if (buffer.jobs or buffer.ended_at is None) and not self.eligibility.closed(buffer.lane)
        }
        # Also while all pilots are served: an unknown lane may be more urgent than the known ones.
        # Soon if a job was given that is given only when no other job waits: there may be another by now.
        pause = self.settings.look_again if unmet <= fed and not self._leftovers else self.settings.settle
        if waiting and now - self._looked_at[False] >= pause and not self._looking[False]:
            self._looking[False], self._leftovers = True, False
            self._background.begin(self._look(foreign=False))
        all_mine = self._slots is None or len(self._slots) == SLOTS
        if foreign and not all_mine and now - self._looked_at[True] >= self.settings.settle and not self._looking[True]:
            self._looking[True] = True
            self._background.begin(self._look(foreign=True))

    def _look_anew_if_asked(self) -> None:
        if self.signal.take_anew():
            self._looked_at = {False: -1e9, True: -1e9}

    def _low(self, waiting: set[str], now: float) -> list[LaneBuffer]:
        """The candidate buffers to refill: the most urgent ones, as far as the memory budget allows."""
        wanted: list[LaneBuffer] = []
        for key, buffer in list(self._buffers.items()):
            if buffer.reading or buffer.lane.tenant not in waiting:
                continue
            settled = buffer.ended_at is None or now - buffer.ended_at >= self.settings.settle
            if settled and buffer.unfit >= len(buffer.jobs):
                # No waiting pilot can run any of these; later or newer candidates may fit.
                buffer.clear()
            if buffer.ended_at is None:
                wanted.append(buffer)
            elif settled and not buffer.jobs:
                # The whole lane was read: a search finds it when it has jobs again.
                del self._buffers[key]
        most = self.settings.budget // LEAST
        if len(wanted) > most:
            wanted.sort(key=lambda buffer: (-buffer.lane.priority, buffer.served))
            del wanted[most:]
        low = min(self.settings.low_water, self._page())
        return [buffer for buffer in wanted if len(buffer.jobs) < low]

    def _page(self) -> int:
        return max(LEAST, min(self.settings.buffer, self.settings.budget // max(1, len(self._buffers))))

    async def _look(self, *, foreign: bool) -> None:
        """Search for lanes that have jobs."""
        self.tally.looks += 1
        try:
            lanes = await self.store.count(self._query(foreign=foreign), by="lane")
            for name in lanes:
                self._buffer(lane_named(name), foreign=foreign)
        except PortError:
            pass  # searched again after the settle time; the request keeps waiting
        finally:
            self._looked_at[foreign] = self.clock.monotonic()
            self._looking[foreign] = False
            self.signal.wake()

    async def _read(self, buffer: LaneBuffer) -> None:
        self.tally.pages += 1
        slots = self._slots
        try:
            query = self._query(foreign=buffer.foreign, lane=str(buffer.lane))
            sort, limit = ("-rank", self.settings.foreign_buffer) if buffer.foreign else ("rank", self._page())
            page = await self.store.search(query, sort=sort, limit=limit, cursor=buffer.cursor)
            if self._slots is not slots and not buffer.foreign:
                return
            fresh = [stored for stored in page.jobs if stored.document.id not in self._taken]
            if self.match is not None and self.match.tenants:
                await self.match.learn(fresh)
                if self._slots is not slots and not buffer.foreign:
                    return
            buffer.jobs.extend(fresh)
            buffer.cursor = page.cursor
            buffer.ended_at = self.clock.monotonic() if page.cursor is None else None
        except PortError:
            buffer.cursor, buffer.ended_at = None, self.clock.monotonic()
        finally:
            buffer.reading = False
            self.signal.wake()

    def _query(self, *, foreign: bool, lane: str | None = None) -> JobQuery:
        slots = (None if self._far else self._fallback) if foreign else self._slots
        at_most = {"not_before": self.clock.now()}
        if foreign:
            at_most["changed"] = self.clock.now() - int(1000 * self.settings.foreign_age)
        return JobQuery(
            states=frozenset({State.AVAILABLE}),
            anyof={"lane": [lane]} if lane else {},
            at_most=at_most,
            held=False,
            slots=None if slots is None or len(slots) == SLOTS else slots,
        )

    def _buffer(self, lane: QueueLane, *, foreign: bool) -> LaneBuffer:
        key = (str(lane), foreign)
        buffer = self._buffers.get(key)
        if buffer is None:
            buffer = self._buffers[key] = LaneBuffer(lane, foreign, served=self._turn)
        return buffer

    def _owns(self, job: str) -> bool:
        return self._slots is None or len(self._slots) == SLOTS or hash_slot_of(job) in self._slots


@dataclass(slots=True, eq=False)
class LaneBuffer:
    """Candidates of one lane, in order, and where the next page begins."""

    lane: QueueLane
    foreign: bool
    jobs: deque[Stored] = field(default_factory=deque)
    cursor: str | None = None
    reading: bool = False
    ended_at: float | None = None
    """When the end of the lane was reached; None while there is more to read."""
    unfit: int = 0
    """Candidates tried in a row that did not fit into the free resources."""
    granted: set[str] = field(default_factory=set)
    """Candidates that were given out of order."""
    served: int = 0
    """The dispatcher's count at which this buffer was last served; the lowest goes first among equals."""

    def clear(self) -> None:
        """Forget the candidates; the position of the next page is kept."""
        self.jobs.clear()
        self.granted.clear()
        self.unfit = 0
