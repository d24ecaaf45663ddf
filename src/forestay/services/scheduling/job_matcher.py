"""Matches jobs to pilots by cached data: one matching for each tenant, fed with candidates, pilots' requests and their caches.

A tenant without pilots that keep caches has none, at no cost. Only candidates with inputs or a co-location are considered; their inputs are in their
specifications, which never change and are read once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.jobs.colocation_key import colocation_of
from forestay.domain.jobs.inputs import filled, logical_name
from forestay.domain.jobs.job_document import JobDocument, lane_of, rank
from forestay.domain.jobs.specification import Specification
from forestay.domain.scheduling.cache_index import Key
from forestay.domain.scheduling.colocation import ColocationRequest
from forestay.domain.scheduling.matching import Matching
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.domain.scheduling.waiting_jobs import CandidateJob
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobStore, Stored
from forestay.services.scheduling.pilot_caches import CacheReport

ASKED = 45.0
"""Seconds after which a pilot that got nothing and did not ask again no longer counts as idle."""
MOST_FILES = 100
"""The most inputs of a job that are weighed."""
SPECIFICATIONS = 5000
CANDIDATES = 40_000


@dataclass(slots=True, eq=False)
class _TenantMatching:
    matching: Matching
    candidates: OrderedDict[str, Stored] = field(default_factory=OrderedDict)
    asked: OrderedDict[str, float] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class JobMatcher:
    """The service."""

    store: JobStore
    clock: Clock
    policy: MatchingPolicy = field(default_factory=MatchingPolicy)
    near_given: int = 0
    """Jobs given because their data, or their co-located jobs, are where the pilot runs."""
    tenants: dict[str, _TenantMatching] = field(default_factory=dict)
    """The tenants whose pilots have reported caches; empty: there is nothing to weigh."""
    _specifications: OrderedDict[str, Specification] = field(default_factory=OrderedDict)

    # -- pilots --------------------------------------------------------------------------------------------------

    def told(self, pilot: str, tenant: str, host: str, site: str, report: CacheReport) -> None:
        """Record a change of a pilot's cache; with base 0 the report is complete."""
        known = self.tenants.get(tenant)
        if known is None:
            known = self.tenants[tenant] = _TenantMatching(Matching(self.policy, ordered=False))
        matching = known.matching
        if not matching.knows(pilot):
            matching.join(pilot, host, site)
        matching.cached(pilot, report.added, report.removed)
        for file in report.gone:
            matching.gone(pilot, file)

    def forgotten(self, pilot: str, tenant: str) -> None:
        """Forget a pilot's cache."""
        known = self.tenants.get(tenant)
        if known is not None and known.matching.knows(pilot):
            known.asked.pop(pilot, None)
            known.matching.part(pilot)
            if not known.matching.pilots:
                del self.tenants[tenant]

    def asks(self, pilot: str, tenant: str, host: str, site: str, slots: int, free: int) -> None:
        """Record that a pilot waits for work."""
        known = self.tenants.get(tenant)
        if known is None:
            return
        matching = known.matching
        now = self.clock.monotonic()
        matching.join(pilot, host, site)
        matching.resize(pilot, max(slots, free))
        matching.idle(pilot, free)
        known.asked[pilot] = now
        known.asked.move_to_end(pilot)
        while known.asked:
            first, at = next(iter(known.asked.items()))
            if now - at < ASKED:
                break
            del known.asked[first]
            matching.busy(first)

    def answered(self, pilot: str, tenant: str) -> None:
        """Record that a pilot was given jobs; it asks again if it has room for more."""
        known = self.tenants.get(tenant)
        if known is not None and known.matching.knows(pilot):
            known.asked.pop(pilot, None)
            known.matching.busy(pilot)

    # -- candidates ----------------------------------------------------------------------------------------------

    def know(self, specifications: Iterable[Specification]) -> None:
        """Remember specifications that are about to be stored, so that the inputs of their jobs need not be looked up."""
        if self.tenants:
            for specification in specifications:
                self._remember(specification)

    def concerns(self, document: JobDocument) -> bool:
        """Whether the placement of a job is weighed here."""
        return document.tenant in self.tenants and (document.stages or colocation_of(document) is not None)

    async def learn(self, page: Sequence[Stored]) -> None:
        """Read the inputs of candidates from the store. Jobs whose inputs cannot be read now are given without regard to data."""
        fresh = [stored for stored in page if self.concerns(stored.document)]
        missing = {
            stored.document.specification for stored in fresh if stored.document.stages
        } - self._specifications.keys()
        if missing:
            with suppress(PortError):
                for spec in (await self.store.get_specifications(sorted(missing))).values():
                    self._remember(spec)
        for stored in fresh:
            self.offer(stored)

    def offer(self, stored: Stored) -> None:
        """Add a candidate, if its inputs are known."""
        document = stored.document
        known = self.tenants.get(document.tenant)
        if known is None:
            return
        files: Sequence[str] = ()
        if document.stages:
            spec = self._specifications.get(document.specification)
            if spec is None:
                return
            files = files_of(document, spec)
        colocate = colocation_of(document)
        if not files and colocate is None:
            return
        lane = lane_of(document)
        known.candidates[document.id] = stored
        known.matching.arrive(
            CandidateJob(
                document.id,
                rank(document),
                files,
                lane.priority,
                ColocationRequest(*colocate) if colocate else None,
                str(lane),
            ),
            self.clock.monotonic(),
        )
        while len(known.candidates) > CANDIDATES:
            job, _ = known.candidates.popitem(last=False)
            known.matching.leave(job)

    def leave(self, tenant: str, job: str) -> None:
        """Remove a job that someone else has, or that may not be claimed."""
        known = self.tenants.get(tenant)
        if known is not None and known.candidates.pop(job, None) is not None:
            known.matching.leave(job)

    def ended(self, tenant: str, job: str) -> None:
        """Record that an attempt is over."""
        known = self.tenants.get(tenant)
        if known is not None:
            known.matching.ended(job, self.clock.monotonic())

    # -- choosing ------------------------------------------------------------------------------------------------

    def weighs(self, tenant: str) -> bool:
        """Whether there is anything to weigh for a tenant's pilots."""
        known = self.tenants.get(tenant)
        return known is not None and bool(known.candidates)

    def tick(self) -> None:
        now = self.clock.monotonic()
        for known in self.tenants.values():
            known.matching.tick(now)

    def near(self, lane: str, tenant: str, pilot: str, fits: Callable[[Stored], bool]) -> Stored | None:
        """The candidate of a lane that should go to this pilot before all others."""
        known = self.tenants[tenant]
        candidates = known.candidates

        def may(job: Key) -> bool:
            stored = candidates.get(str(job))
            return stored is not None and fits(stored)

        job = known.matching.near(lane, pilot, self.clock.monotonic(), may)
        return candidates[str(job)] if job is not None else None

    def held_back(self, document: JobDocument, pilot: str, *, last: bool) -> bool:
        """Whether another pilot should get a job; with `last` only if that one is idle."""
        known = self.tenants.get(document.tenant)
        if known is None or document.id not in known.candidates:
            return False
        matching = known.matching
        if not matching.held_back(document.id, pilot, self.clock.monotonic()):
            return False
        return not (last and matching.put_aside(document.id))

    def given(self, document: JobDocument, pilot: str, *, near: bool) -> None:
        """Record that a candidate is being given to a pilot."""
        known = self.tenants.get(document.tenant)
        if known is not None and known.candidates.pop(document.id, None) is not None:
            self.near_given += near
            if known.matching.knows(pilot):
                known.matching.give(document.id, pilot, self.clock.monotonic())
            else:
                known.matching.leave(document.id)

    def _remember(self, spec: Specification) -> None:
        self._specifications[spec.id] = spec
        while len(self._specifications) > SPECIFICATIONS:
            self._specifications.popitem(last=False)


def files_of(document: JobDocument, spec: Specification) -> Sequence[str]:
    """The files that a job reads, by their names in caches and catalogue."""
    names = (
        logical_name(filled(job_input, document.parameters, document.index)) for job_input in spec.inputs[:MOST_FILES]
    )
    return tuple(dict.fromkeys(name for name in names if name is not None))
