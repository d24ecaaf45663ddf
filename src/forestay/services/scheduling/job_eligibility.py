"""Which jobs a pilot that asks for work may have now; the order in which they are given is decided elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from forestay.domain.jobs.claim import avoids, claimable
from forestay.domain.jobs.claim_access import may_have
from forestay.domain.jobs.job_document import JobDocument, QueueLane
from forestay.domain.jobs.requirements import REQUIRES
from forestay.domain.jobs.resources import Resources, fits
from forestay.domain.pilots.lifetime import ends_in_time
from forestay.services.scheduling.claim_request import ClaimRequest
from forestay.services.scheduling.licence_seats import LicenceSeats
from forestay.services.scheduling.quota_ledgers import QuotaLedgers
from forestay.services.scheduling.requirement_matcher import RequirementMatcher


class Suspensions(Protocol):
    """Knows which jobs may not be claimed now, for a reason that is not in their document."""

    def suspended(self, document: JobDocument) -> bool: ...


class ImageRunners(Protocol):
    """Knows which pilots can run a job's container image."""

    def leaves(self, document: JobDocument, runtimes: frozenset[str] | None) -> bool: ...


@dataclass(frozen=True, slots=True)
class JobEligibility:
    """The one list of conditions for giving a job to a pilot."""

    suspensions: Suspensions | None = None
    containers: ImageRunners | None = None
    requirements: RequirementMatcher | None = None
    """Knows which pilots satisfy the requirements of jobs; None: jobs with requirements are not given."""
    seats: LicenceSeats | None = None
    quotas: QuotaLedgers | None = None

    def available(self, document: JobDocument, now: int) -> bool:
        """Whether any pilot may have a job now."""
        return claimable(document, now) and not self._is_withheld(document)

    def may_have(self, document: JobDocument, request: ClaimRequest, free: Resources, now: int) -> bool:
        """Whether a pilot that asks may have a claimable job, of what is left free of its resources."""
        return not self._is_withheld(document) and self.suits(document, request, free, now)

    def suits(self, document: JobDocument, request: ClaimRequest, free: Resources, now: int) -> bool:
        """Whether an available job is one for the pilot that asks."""
        return (
            may_have(document, request.owner)
            and fits(document.resources, free)
            and ends_in_time(document, free.wall)
            and (not document.extra or self._is_suitable(document, request, now))
        )

    def closed(self, lane: QueueLane) -> bool:
        """Whether a quota keeps all jobs of a lane waiting: it is skipped, and its candidates are kept."""
        return self.quotas is not None and self.quotas.closed(lane)

    def _is_withheld(self, document: JobDocument) -> bool:
        """Whether all pilots must leave a job for now, for a reason that is not in its document."""
        if self.seats is not None and self.seats.exhausted(document):
            return True
        if self.quotas is not None and self.quotas.exhausted(document):
            return True
        return self.suspensions is not None and self.suspensions.suspended(document)

    def _is_suitable(self, document: JobDocument, request: ClaimRequest, now: int) -> bool:
        """Whether the job neither avoids the pilot's host or site nor is left to pilots that can run its image, and the pilot satisfies its requirements."""
        if avoids(document, request.host, now, request.site):
            return False
        if self.containers is not None and self.containers.leaves(document, request.runtimes):
            return False
        if REQUIRES not in document.extra:
            return True
        return self.requirements is not None and self.requirements.satisfies(document, request.machine)
