"""Assigns jobs to pilots: one version-checked write for each claim, many claims in a round trip.

Each server serves the jobs in its own hash slots and keeps buffers of candidates (`candidate_buffers`). Pilots' requests wait; all
that can be answered at one moment are written in one bulk. A request that finds nothing for a while is served from other
servers' slots too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TypeVar

from forestay.domain.jobs.claim import claim, claimable, pilot_deaths
from forestay.domain.jobs.job_document import JobDocument, State, downstream_of, queue_named, rank
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.requirements import LICENCES
from forestay.domain.jobs.resources import Resources, less
from forestay.domain.scheduling.host_health import SlotTurn
from forestay.ports.clock import Clock, Ids
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.jobs.claim_releaser import release_write
from forestay.services.jobs.first_claims import FirstClaimer, FirstClaims
from forestay.services.jobs.job_submitter import NewJobListener
from forestay.services.scheduling.candidate_buffers import CandidateBuffers, CandidateSignal
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.claim_settings import ClaimSettings, ClaimTally
from forestay.services.scheduling.container_fleet import ContainerFleet
from forestay.services.scheduling.fair_shares import FairShares
from forestay.services.scheduling.host_health_tracker import HostHealthTracker
from forestay.services.scheduling.job_eligibility import JobEligibility, Suspensions
from forestay.services.scheduling.job_matcher import JobMatcher
from forestay.services.scheduling.licence_seats import LicenceSeats, WantedSeats
from forestay.services.scheduling.quota_ledgers import QuotaLedgers
from forestay.services.scheduling.requirement_matcher import RequirementMatcher
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import ProposedWrite, WriteApplied, WriteListener, Writer

Picked = TypeVar("Picked", Stored, JobDocument)

REMEMBERED_PILOTS = 20_000
BUSY = 0.05
"""Seconds since the last write for which requests are gathered: on an idle system waiting for others is not worthwhile."""


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A pilot's request for work that waits for its answer."""

    request: ClaimRequest
    since: float
    answer: asyncio.Future[list[Stored]]
    busy: bool = False


class ClaimDispatcher(WriteListener, NewJobListener, FirstClaimer):
    """The claim dispatcher of one server."""

    def __init__(
        self,
        store: JobStore,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        settings: ClaimSettings | None = None,
        *,
        match: JobMatcher | None = None,
        hosts: HostHealthTracker | None = None,
        suspensions: Suspensions | None = None,
        signal: CandidateSignal | None = None,
        containers: ContainerFleet | None = None,
        requirements: RequirementMatcher | None = None,
        seats: LicenceSeats | None = None,
        quotas: QuotaLedgers | None = None,
        shares: FairShares | None = None,
    ) -> None:
        """``match`` weighs the location of data, ``hosts`` the health of hosts, ``containers`` who can run images; None: not considered."""
        self.store = store
        self.writer = writer
        self.clock = clock
        self.ids = ids
        self.settings = settings or ClaimSettings()
        self.tally = ClaimTally()
        self.signal = signal or CandidateSignal()
        self.containers = containers
        self.eligibility = JobEligibility(suspensions, containers, requirements, seats, quotas)
        self.buffers = CandidateBuffers(
            store, clock, self.settings, self.tally, self.signal, self.eligibility, match, shares
        )
        self.seats = seats
        self.quotas = quotas
        self.shares = shares
        self.match = match
        self.hosts = hosts
        self._waiting: list[WaitingRequest] = []
        self._flying = 0
        self._took_off = -1e9
        self._background = BackgroundTasks()
        self._hungry: OrderedDict[str, float] = OrderedDict()
        """Since when each pilot has waited without success."""

    # -- requests of pilots ------------------------------------------------------------------------------------

    async def claim(self, request: ClaimRequest, *, wait: float) -> list[Stored]:
        """Wait, at most `wait` seconds, for jobs that fit; the result may be empty. If cancelled, claims already given are returned.

        What is given fits into what is free all at once; with a batch, so often over, one after another. Jobs that are meant for a
        downstream are given to who asks for it, and to nobody else. A pilot that was enrolled for an owner gets the jobs of no other.
        """
        loop = asyncio.get_running_loop()
        # A pilot that asks often and briefly has waited since its first unsuccessful request, not since its last.
        since = self._hungry.setdefault(request.pilot, self.clock.monotonic())
        if len(self._hungry) > REMEMBERED_PILOTS:
            self._hungry.popitem(last=False)
        answer: asyncio.Future[list[Stored]] = loop.create_future()
        waiter = WaitingRequest(request, since, answer)
        if (match := self._matcher) is not None and not request.downstream:
            match.asks(request.pilot, request.tenant, request.host, request.site, request.slots, request.most)
        self._waiting.append(waiter)
        self.signal.wake()
        try:
            done, _ = await asyncio.wait({waiter.answer}, timeout=wait)
            while not done and waiter.busy:  # its claims are being written: they must not be lost
                done, _ = await asyncio.wait({waiter.answer}, timeout=wait)
            return waiter.answer.result() if done else []
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                # Granted at the moment when the caller went away.
                self._background.begin(self._give_back(answer.result()))
            raise
        finally:
            if not waiter.answer.done():
                waiter.answer.cancel()
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def give_back(self, jobs: Sequence[Stored]) -> None:
        """Release claims that were given to a pilot which will not hear of them."""
        if jobs:
            self._background.begin(self._give_back(jobs))

    def has_some_for(self, tenant: str, free: Resources) -> bool:
        """Whether a request for work with so much free is likely to be answered at once."""
        return self.buffers.has_some_for(queue_named(tenant), free)

    def dismiss(self) -> None:
        """Answer all waiting requests with nothing, because the server stops. Claims being written are still handed over."""
        for waiter in [waiter for waiter in self._waiting if not waiter.busy]:
            self._waiting.remove(waiter)
            if not waiter.answer.done():
                waiter.answer.set_result([])

    @property
    def _matcher(self) -> JobMatcher | None:
        """The matcher that weighs the location of data; None also while no pilot has reported a cache."""
        return self.match if self.match is not None and self.match.tenants else None

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def assign_hash_slots(self, slots: frozenset[int], fallback: frozenset[int] | None = None) -> None:
        """Set our hash slots and our fallback slots among those of others; None: all of them."""
        self.buffers.assign_hash_slots(slots, fallback)

    def created(self, jobs: Sequence[Stored]) -> None:
        """Called for jobs that were just written here: a waiting pilot gets them without a search."""
        room: dict[str, int] = {}
        for waiter in self._waiting:
            if not waiter.busy:
                room[waiter.request.queue] = room.get(waiter.request.queue, 0) + waiter.request.most
        self.buffers.offer([job for job in jobs if job.document.state is State.AVAILABLE], room)
        if room:
            self.signal.wake()

    def claim_first(self, documents: Sequence[JobDocument]) -> FirstClaims[WaitingRequest] | None:
        """Give jobs that are about to be created to pilots that wait here, in the write that creates them.

        Only to pilots that would get nothing else: queued jobs go first. The requests are busy until the claims are closed.
        """
        waiting = [waiter for waiter in self._waiting if not waiter.busy and not waiter.answer.done()]
        if not waiting:
            return None
        now = self.clock.now()
        match = self._matcher
        concerns = match.concerns if match is not None else None
        quotas = self.quotas if self.quotas is not None and not self.quotas.idle else None
        fresh = [
            document
            for document in documents
            if self.eligibility.available(document, now)
            and LICENCES not in document.extra
            and (quotas is None or not quotas.applies(document))
            and (concerns is None or not concerns(document))
        ]
        fresh.sort(key=rank)
        granted: dict[str, tuple[WaitingRequest, JobDocument]] = {}
        for waiter in waiting:
            if not fresh or len(granted) >= self.settings.bulk:
                break
            most = self.settings.bulk - len(granted)
            if self.hosts is not None:
                most = min(most, self.hosts.allowance(waiter.request.tenant, waiter.request.host, waiter.request.most))
            if most and self.buffers.has_none_for(waiter.request.queue, waiter.request.free, waiter.request.owner):
                turns = self.hosts.turns(waiter.request.tenant, waiter.request.host) if self.hosts is not None else None
                for document in self._pick(waiter, most, self._fresh_for(waiter.request, fresh, now, turns)):
                    claimed = self._claimed(waiter, document, now)
                    if isinstance(claimed, JobDocument):
                        granted[document.id] = waiter, claimed
                        waiter.busy = True
                        if self.hosts is not None:
                            self.hosts.given(waiter.request.tenant, waiter.request.host, [document])
        return FirstClaims(granted, self._close) if granted else None

    def _fresh_for(
        self,
        request: ClaimRequest,
        fresh: list[JobDocument],
        now: int,
        turns: Callable[[JobDocument], SlotTurn] | None,
    ) -> Callable[[Resources], JobDocument | None]:
        def next_fresh(free: Resources) -> JobDocument | None:
            for place, document in enumerate(fresh[: self.settings.look]):
                if (
                    queue_named(document.tenant, downstream_of(document)) == request.queue
                    and self.eligibility.suits(document, request, free, now)
                    and (turns is None or turns(document) is SlotTurn.NOW)
                ):
                    return fresh.pop(place)
            return None

        return next_fresh

    def _close(self, claims: FirstClaims[WaitingRequest]) -> None:
        status = claims.status
        self.tally.first += len(status)
        self.tally.lost += len(claims.claims) - len(status)
        for waiter in {id(waiter): waiter for waiter, _ in claims.claims.values()}.values():
            waiter.busy = False
            # In the order in which they were picked: a pilot may run them one after the other.
            mine = [job for job, (whose, _) in claims.claims.items() if whose is waiter]
            self._answer(waiter, [status[job] for job in mine if job in status])
        if claims.strays:
            self._background.begin(self._give_back(claims.strays))
        self.signal.wake()

    def notice(self, stored: Stored) -> None:
        """Called for each document written here: if the job is available again, a waiting pilot may get it at once."""
        document = stored.document
        match = self._matcher
        if match is not None and document.attempt > 0 and document.state is not State.RUNNING:
            match.ended(document.tenant, document.id)
        if document.state is State.AVAILABLE and document.attempt > 0:
            self.buffers.free(document.id)
            if claimable(document, self.clock.now()):
                self.created([stored])

    # -- the loop ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve requests until cancelled."""
        try:
            while True:
                await self.signal.wait(self.settings.idle if self._waiting else 1.0)
                if self._waiting and self.settings.gather and self.clock.monotonic() - self._took_off < BUSY:
                    await asyncio.sleep(self.settings.gather)
                self.buffers.promote_pending(self.clock.monotonic())
                if self._waiting and self._worth_serving():
                    self._serve()
        finally:
            self.buffers.stop()
            if self.containers is not None:
                self.containers.stop()
            self._background.stop()

    def _worth_serving(self) -> bool:
        """Whether requests should be served now. During a write only a large batch justifies another: few requests wait until the first is done, or late."""
        if not self._flying:
            return True
        if self._flying >= self.settings.flights:
            return False
        if self.clock.monotonic() - self._took_off >= self.settings.idle:
            return True
        return 2 * sum(waiter.request.most for waiter in self._waiting if not waiter.busy) >= self.settings.bulk

    def _serve(self) -> None:
        now = self.clock.monotonic()
        if (match := self._matcher) is not None:
            match.tick()
        batch: list[tuple[WaitingRequest, Stored]] = []
        unmet: list[WaitingRequest] = []
        for waiter in self._waiting:
            if waiter.busy or waiter.answer.done():
                continue
            most = self.settings.bulk - len(batch)
            if self.hosts is not None:
                most = min(most, self.hosts.allowance(waiter.request.tenant, waiter.request.host, waiter.request.most))
                if not most:
                    continue  # its host is closed
            picked = self._pick(waiter, most, self._queued_for(waiter, now))
            if picked:
                if self.hosts is not None:
                    self.hosts.given(waiter.request.tenant, waiter.request.host, [stored.document for stored in picked])
                waiter.busy = True
                batch += [(waiter, stored) for stored in picked]
            else:
                unmet.append(waiter)
            if len(batch) >= self.settings.bulk:
                break  # later requests do not count as unmet: they were not tried
        if batch:
            self._flying += 1
            self._took_off = now
            self._background.begin(self._commit(batch))
        self.buffers.refill(
            now,
            waiting={waiter.request.queue for waiter in self._waiting},
            unmet={waiter.request.queue for waiter in unmet},
            hunger=max((now - waiter.since for waiter in unmet), default=0.0),
        )

    # -- choosing ----------------------------------------------------------------------------------------------

    def _pick(self, waiter: WaitingRequest, most: int, take: Callable[[Resources], Picked | None]) -> list[Picked]:
        picked: list[Picked] = []
        most = min(most, waiter.request.most)
        for _ in range(waiter.request.batch):
            free = waiter.request.free
            before = len(picked)
            while len(picked) < most and (candidate := take(free)):
                picked.append(candidate)
                free = less(free, (candidate if isinstance(candidate, JobDocument) else candidate.document).resources)
            if len(picked) == before or len(picked) == most:
                break
        return picked

    def _queued_for(self, waiter: WaitingRequest, now: float) -> Callable[[Resources], Stored | None]:
        foreign = now - waiter.since >= self.settings.foreign_after
        turns = self.hosts.turns(waiter.request.tenant, waiter.request.host) if self.hosts is not None else None

        def next_queued(free: Resources) -> Stored | None:
            nonlocal turns
            stored = self.buffers.next(waiter.request, free, foreign=foreign, turns=turns)
            if stored is not None and pilot_deaths(stored.document):
                turns = _unless_suspect(turns)
            if stored is not None:
                self._chosen(stored.document)
            return stored

        return next_queued

    def _chosen(self, document: JobDocument) -> None:
        if self.quotas is not None and not self.quotas.idle:
            self.quotas.reserve(document)
        if self.shares is not None and self.shares.active:
            self.shares.chosen(document)

    # -- writing -----------------------------------------------------------------------------------------------

    async def _commit(self, batch: Sequence[tuple[WaitingRequest, Stored]]) -> None:
        try:
            names = [self.ids.claim() for _ in batch]
            seated = await self._seated(batch, names)
            writes = [
                self._proposed(waiter, stored, name)
                for (waiter, stored), name in zip(batch, names, strict=True)
                if name in seated
            ]
            self.tally.bulks += 1
            answers = dict(
                zip([name for name in names if name in seated], await self.writer.write(writes), strict=True)
            )
            granted: dict[int, list[Stored]] = {}
            for (waiter, stored), name in zip(batch, names, strict=True):
                answer = answers.get(name)
                if isinstance(answer, WriteApplied):
                    granted.setdefault(id(waiter), []).append(answer.stored)
                else:
                    self.tally.lost += 1
                    if answer is None:
                        self._pass_over(stored)
                    elif isinstance(answer, TransitionRefused):
                        self._abandon(name, stored.document)
                    if self.match is not None:
                        self.match.ended(stored.document.tenant, stored.document.id)
            for waiter in {id(waiter): waiter for waiter, _ in batch}.values():
                self._answer(waiter, granted.get(id(waiter), []))
        except Exception as error:  # a bug must not leave the requests waiting
            for waiter, _ in batch:
                if not waiter.answer.done():
                    waiter.answer.set_exception(error)
        finally:
            for waiter, _ in batch:
                waiter.busy = False
            self._flying -= 1
            self.signal.wake()

    def _answer(self, waiter: WaitingRequest, jobs: list[Stored]) -> None:
        """Hand over the claims written for a request."""
        self.tally.granted += len(jobs)
        if not jobs:
            return
        if waiter.answer.done():  # its caller went away meanwhile: no pilot knows of these claims
            self._background.begin(self._give_back(jobs))
            return
        self._waiting.remove(waiter)
        self._hungry.pop(waiter.request.pilot, None)
        if (match := self._matcher) is not None:
            match.answered(waiter.request.pilot, waiter.request.tenant)
        waiter.answer.set_result(jobs)

    def _claimed(self, waiter: WaitingRequest, document: JobDocument, now: int) -> JobDocument | TransitionRefused:
        return claim(
            document,
            claim_id=self.ids.claim(),
            pilot=waiter.request.pilot,
            host=waiter.request.host,
            now=now,
            owner=waiter.request.owner,
        )

    async def _seated(self, batch: Sequence[tuple[WaitingRequest, Stored]], names: Sequence[str]) -> Container[str]:
        """The claims that may be written: jobs that need a seat must have got one."""
        granted = await self._with_licences(batch, names)
        if self.quotas is None or self.quotas.idle:
            return granted
        wanted = [
            WantedSeats(name, stored.document)
            for (_, stored), name in zip(batch, names, strict=True)
            if name in granted
        ]
        try:
            entered = await self.quotas.take(wanted)
        finally:
            self.quotas.settled([stored.document for _, stored in batch])
        if self.seats is not None:
            self.seats.give_back({claim: document for claim, document in wanted if claim not in entered})
        return entered

    async def _with_licences(
        self, batch: Sequence[tuple[WaitingRequest, Stored]], names: Sequence[str]
    ) -> Container[str]:
        wanted = [
            WantedSeats(name, stored.document)
            for (_, stored), name in zip(batch, names, strict=True)
            if stored.document.extra and LICENCES in stored.document.extra
        ]
        if not wanted:
            return frozenset(names)
        granted = await self.seats.take(wanted) if self.seats is not None else frozenset()
        return granted.union(set(names) - {want.claim for want in wanted})

    def _pass_over(self, stored: Stored) -> None:
        """A job has no seat or no part of a quota now, and may get one soon."""
        if self.quotas is not None and self.quotas.exhausted(stored.document):
            self.buffers.put_back(stored)
        else:
            self.buffers.free(stored.document.id)

    def _abandon(self, name: str, document: JobDocument) -> None:
        """A claim was refused: what was taken for it is returned once it certainly fails."""
        if self.seats is not None and document.extra and LICENCES in document.extra:
            self.seats.abandon(name, document)
        if self.quotas is not None and not self.quotas.idle:
            self.quotas.abandon(name, document)

    def _proposed(self, waiter: WaitingRequest, stored: Stored, name: str) -> ProposedWrite:
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            return claim(
                document,
                claim_id=name,
                pilot=waiter.request.pilot,
                host=waiter.request.host,
                now=now,
                owner=waiter.request.owner,
            )

        def already_applied(document: JobDocument) -> bool:
            return document.claim is not None and document.claim.id == name

        return ProposedWrite(stored.document.id, decide, already_applied, known=stored, no_retry=True)

    async def _give_back(self, jobs: Sequence[Stored]) -> None:
        why = "the pilot's request ended before its response"
        now = self.clock.now()
        await self.writer.write(
            [
                release_write(job, by="server", reason=why, overlap_possible=False, now=now, executed=False)
                for job in jobs
            ]
        )


def _unless_suspect(turns: Callable[[JobDocument], SlotTurn] | None) -> Callable[[JobDocument], SlotTurn]:
    """Turns that give no second suspect job to a pilot: if it died, it would be unclear which of them kills pilots."""

    def turn(document: JobDocument) -> SlotTurn:
        if pilot_deaths(document):
            return SlotTurn.NOT_HERE
        return SlotTurn.NOW if turns is None else turns(document)

    return turn
