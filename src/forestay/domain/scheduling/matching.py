"""Which job a pilot gets: by priority, then by the bytes that are already where it runs, then by age.

Two mechanisms modify that order. *waitForData*: a job is held back from a pilot without its data while an idle pilot elsewhere has more of it, for a bounded
time, and never more jobs than there are such pilots. *Look-ahead*: jobs whose outputs are combined in one later job go to one place while it has slots,
so that the later job finds all of them there. While there is enough other work, a job whose place is busy is quarantined for it, which costs nothing.

One object, no clock, no randomness, no I/O: the caller reports what has happened and when, be it a server with waiting pilots or a simulation with a hundred
thousand of them. Every query costs about the same however many pilots and jobs there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from heapq import heappush
from itertools import islice
from math import inf

from forestay.domain.scheduling.cache_domains import CacheDomain, LocatedPilot
from forestay.domain.scheduling.cache_index import CacheIndex, Key
from forestay.domain.scheduling.delay_scheduling import LOOK, DelayScheduler
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.domain.scheduling.waiting_jobs import CandidateJob, Queue, WaitingJob

FILES = 64
"""The most files that are both at a place and needed that are considered for one request."""

Fits = Callable[[Key], bool]
"""Whether the asking pilot can run a job at all."""


class Matching:
    """The waiting jobs and the asking pilots of one server or one simulation."""

    def __init__(self, policy: MatchingPolicy, *, ordered: bool = True) -> None:
        self._ordered = ordered
        """Whether `take` is used; a caller that keeps the order of the jobs elsewhere needs none here."""
        self._near, self._far = CacheIndex(), CacheIndex()
        self._jobs: dict[Key, WaitingJob] = {}
        self._queues: dict[Key, Queue] = {}
        self._by_priority: list[Queue] = []
        self._pilots: dict[Key, LocatedPilot] = {}
        self._idle: OrderedDict[Key, None] = OrderedDict()
        self._places: dict[Key, CacheDomain] = {}
        self._sites: dict[Key, CacheDomain] = {}
        self._back = DelayScheduler(
            policy, near=self._near, far=self._far, places=self._places, sites=self._sites, ordered=ordered
        )
        self._shelves, self._colocations = self._back.shelves, self._back.colocations

    # -- jobs ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job: Key) -> bool:
        return job in self._jobs

    def arrive(self, wanted: CandidateJob, now: float) -> None:
        """A job starts to wait."""
        if wanted.job in self._jobs:
            return
        queue = self._queue(wanted)
        waiting = self._jobs[wanted.job] = WaitingJob(wanted, queue)
        queue.add(waiting)
        if self._ordered:
            queue.push(waiting)
        if wanted.colocate is not None:
            colocation = self._colocations.arrive(wanted.job, wanted.colocate)
            place = self._places.get(colocation.place) if colocation.place is not None else None
            if place is not None:
                self._back.keep_room(colocation, place)
                self._back.keep_for(waiting, place, now)

    def leave(self, job: Key) -> None:
        """A job no longer waits: it was cancelled, or someone else has it."""
        waiting = self._remove(job)
        if waiting is not None and waiting.wanted.colocate is not None:
            colocation = self._colocations.leave(job, waiting.wanted.colocate)
            if colocation is not None:
                self._back.let_room_go(colocation)

    # -- pilots --------------------------------------------------------------------------------------------------

    def join(self, pilot: Key, host: Key, site: Key | None = None, slots: int = 1) -> None:
        """A pilot has joined."""
        if pilot in self._pilots:
            return
        place = self._places.get(host)
        if place is None:
            place = self._places[host] = CacheDomain(host)
        place.slots += slots
        far = None
        if site is not None:
            far = self._sites.get(site)
            if far is None:
                far = self._sites[site] = CacheDomain(site)
        self._pilots[pilot] = LocatedPilot(pilot, place, far, slots)
        self._shelves.put(place)

    @property
    def pilots(self) -> int:
        return len(self._pilots)

    def resize(self, pilot: Key, slots: int) -> None:
        """Set the number of slots of a pilot."""
        known = self._pilots[pilot]
        if known.slots != slots:
            known.place.slots += slots - known.slots
            known.slots = slots
            self._shelves.put(known.place)

    def part(self, pilot: Key) -> None:
        """A pilot has left, with its cache."""
        known = self._pilots.get(pilot)
        if known is None:
            return
        self.busy(pilot)
        del self._pilots[pilot]
        place = known.place
        self._near.forget(pilot, place.name)
        if known.site is not None:
            self._far.forget(pilot, known.site.name)
        place.slots -= known.slots
        if place.slots <= 0:
            self._places.pop(place.name, None)
            for waiting in [*place.held.values(), *place.quarantine.values()]:
                self._back.let_go(waiting)
        self._shelves.put(place)

    def idle(self, pilot: Key, free: int = 1) -> None:
        """Set the number of idle slots of a pilot."""
        known = self._pilots[pilot]
        if known.free != free:
            self._set_free(known, free)

    def busy(self, pilot: Key) -> None:
        """All slots of a pilot are busy."""
        known = self._pilots[pilot]
        if known.free:
            self._set_free(known, 0)

    def _set_free(self, known: LocatedPilot, free: int) -> None:
        pilot = known.name
        more = free - known.free
        known.free = free
        if free:
            self._idle[pilot] = None
        else:
            del self._idle[pilot]
        for place in (known.place, known.site):
            if place is not None:
                place.free += more
                if free:
                    place.idle[pilot] = free
                else:
                    del place.idle[pilot]
                while len(place.held) > place.free:
                    self._back.let_go(next(reversed(place.held.values())))
        self._shelves.put(known.place)

    def cached(self, pilot: Key, added: Iterable[tuple[Key, int]] = (), removed: Iterable[Key] = ()) -> None:
        """Update a pilot's cache: files added, with sizes in bytes, and files removed."""
        known = self._pilots[pilot]
        self._near.remove(pilot, known.place.name, removed)
        self._near.add(pilot, known.place.name, added)
        if known.site is not None:
            self._far.remove(pilot, known.site.name, removed)
            self._far.add(pilot, known.site.name, added)

    def gone(self, pilot: Key, file: Key) -> None:
        """The last link to a file at a pilot's place is deleted."""
        self._near.lose(self._pilots[pilot].place.name, file)

    def knows(self, pilot: Key) -> bool:
        return pilot in self._pilots

    def present(self, pilot: Key, files: Iterable[Key]) -> int:
        """How many bytes of these files are at a pilot's place."""
        return self._near.bytes_at(self._pilots[pilot].place.name, files)

    # -- choosing ------------------------------------------------------------------------------------------------

    def take(self, pilot: Key, now: float, fits: Fits | None = None) -> Key | None:
        """Give the best job to an idle pilot; None: it keeps waiting."""
        self._back.tick(now)
        asker = self._pilots[pilot]
        for queue in self._by_priority:
            job = self._nearest(queue, asker, now, fits)
            if job is None:
                job = self._oldest(queue, asker, now, fits) or self._put_aside(queue, fits)
            if job is not None:
                self.give(job.wanted.job, pilot, now)
                return job.wanted.job
        return None

    def pilot_for(self, job: Key, now: float) -> Key | None:
        """The idle pilot that a waiting job should go to; None: no pilot is idle. For callers that wake pilots instead of letting them ask."""
        waiting = self._jobs[job]
        if not self._idle:
            return None
        place = waiting.place if waiting.place is not None and not waiting.quarantine else None
        if place is None and waiting.wanted.files:
            sizes = {
                name: self._near.bytes_at(name, waiting.wanted.files)
                for file in waiting.wanted.files
                for name in islice(self._near.where(file), LOOK)
                if self._places[name].ready
            }
            if sizes:
                place = self._places[max(sizes, key=sizes.__getitem__)]
        if place is not None and place.idle:
            return next(iter(place.idle))
        first = next(iter(self._idle))
        if self._back.held(waiting, self._pilots[first], now) and waiting.place is not None and waiting.place.idle:
            return next(iter(waiting.place.idle))
        return first

    def near(self, queue: Key, pilot: Key, now: float, fits: Fits | None = None) -> Key | None:
        """The job of a queue that should go to this pilot before all others: its data are here, or it is to be co-located here."""
        known = self._queues.get(queue)
        if known is None or pilot not in self._pilots:
            return None
        job = self._nearest(known, self._pilots[pilot], now, fits)
        return job.wanted.job if job is not None else None

    def held_back(self, job: Key, pilot: Key, now: float) -> bool:
        """Whether a job is held back from a pilot because another one should get it."""
        waiting = self._jobs.get(job)
        return waiting is not None and pilot in self._pilots and self._back.held(waiting, self._pilots[pilot], now)

    def put_aside(self, job: Key) -> bool:
        """Whether a held back job may go to any pilot without other work."""
        waiting = self._jobs.get(job)
        return waiting is None or waiting.place is None or waiting.quarantine

    def give(self, job: Key, pilot: Key, now: float) -> None:
        """A job was given to a pilot."""
        waiting = self._remove(job)
        known = self._pilots[pilot]
        if known.free:
            self._set_free(known, known.free - 1)
        if waiting is None or waiting.wanted.colocate is None:
            return
        place = known.place
        colocation = self._colocations.give(job, waiting.wanted.colocate, now)
        if colocation.place is None:
            colocation.place = place.name
            self._back.keep_room(colocation, place)
            for fellow in list(islice(colocation.waiting, place.slots)):
                other = self._jobs[fellow]
                if other.place is None:
                    self._back.keep_for(other, place, now)
        self._back.let_room_go(colocation)

    def ended(self, job: Key, now: float) -> None:
        """An attempt at a job that was given out here has ended."""
        colocation = self._colocations.end(job, now)
        if colocation is not None:
            self._back.let_room_go(colocation)

    def tick(self, now: float) -> None:
        """Release jobs that were held back long enough, and drop old colocations."""
        self._back.tick(now)

    def _nearest(self, queue: Queue, asker: LocatedPilot, now: float, fits: Fits | None) -> WaitingJob | None:
        wanting = queue.wanting
        place = asker.place
        if wanting:
            for have in (
                self._near.at(place.name),
                self._far.at(asker.site.name) if asker.site is not None and len(self._sites) > 1 else None,
            ):
                if have:
                    few, many = (have, wanting) if len(have) < len(wanting) else (wanting, have)
                    common = [file for file in few if file in many]
                    if common and (job := self._most_bytes(queue, common[:FILES], have, asker, now, fits)):
                        return job
        best = None
        unfit: list[WaitingJob] = []
        for kept in (place.held, place.quarantine):
            for waiting in kept.values():
                if waiting.queue is not queue or (best is not None and waiting.wanted.age >= best.wanted.age):
                    continue
                if fits is None or fits(waiting.wanted.job):
                    best = waiting
                elif kept is place.held:
                    unfit.append(waiting)
        for waiting in unfit:
            # It is reserved for an idle pilot that cannot run it: such a reservation is void.
            waiting.held_since = -inf
            self._back.let_go(waiting)
        return best

    def _most_bytes(
        self,
        queue: Queue,
        files: list[Key],
        have: Mapping[Key, int],
        asker: LocatedPilot,
        now: float,
        fits: Fits | None,
    ) -> WaitingJob | None:
        weighed: dict[WaitingJob, tuple[int, float, int]] = {}
        for file in files:
            for waiting in queue.wanting[file].first(LOOK):
                if waiting not in weighed:
                    wanted = waiting.wanted
                    size = 0
                    for key in wanted.files:
                        if key in have:
                            size += have[key]
                    weighed[waiting] = (-size, wanted.age, len(weighed))
        back = self._back
        for waiting in weighed if len(weighed) == 1 else sorted(weighed, key=weighed.__getitem__):
            if (fits is None or fits(waiting.wanted.job)) and not back.held(waiting, asker, now):
                return waiting
        return None

    def _oldest(self, queue: Queue, asker: LocatedPilot, now: float, fits: Fits | None) -> WaitingJob | None:
        order, back = queue.order, self._back
        unfit: list[tuple[float, int, WaitingJob]] = []
        job = None
        while order:
            waiting = order[0][2]
            if waiting.gone or waiting.place is not None:
                queue.pop()
            elif fits is not None and not fits(waiting.wanted.job):
                unfit.append(queue.pop())
                if len(unfit) >= FILES:
                    break
            elif back.held(waiting, asker, now):
                queue.pop()
            else:
                job = waiting
                break
        for entry in unfit:
            heappush(order, entry)
        return job

    def _put_aside(self, queue: Queue, fits: Fits | None) -> WaitingJob | None:
        """A quarantined job, reserved for a busy pilot: there is no other work for the asking one."""
        for waiting in queue.quarantine.values():
            if fits is None or fits(waiting.wanted.job):
                return waiting
        return None

    # -- queues --------------------------------------------------------------------------------------------------

    def _queue(self, wanted: CandidateJob) -> Queue:
        name = wanted.queue if wanted.queue is not None else wanted.priority
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = Queue(name, wanted.priority)
            self._by_priority.append(queue)
            self._by_priority.sort(key=lambda queue: -queue.priority)
        return queue

    def _remove(self, job: Key) -> WaitingJob | None:
        waiting = self._jobs.pop(job, None)
        if waiting is None:
            return None
        self._back.drop(waiting)
        queue = waiting.queue
        queue.remove(waiting)
        if not queue.many:
            del self._queues[queue.name]
            self._by_priority.remove(queue)
        return waiting
