"""The cache as the rest of the pilot uses it: registration, staging, reports, release."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.cache.cache import Cache, CacheSettings
from forestay_pilot.cache.cache_changes import CacheChanges
from forestay_pilot.cache.cache_neighbours import Neighbours
from forestay_pilot.cache.cache_share import CacheShare
from forestay_pilot.cache.cache_staging import CacheStaging

if TYPE_CHECKING:
    from forestay_pilot.link.held_claims import ClaimInHand
    from forestay_pilot.process.payload import ClaimedJob
    from forestay_pilot.staging.outputs import OutputManifest
    from forestay_pilot.staging.staging import Fetch, InputCache

log = logging.getLogger("forestay_pilot")

COMMITTED = "committed"


class PilotCache:
    """One pilot's cache with all that belongs to it; without settings it keeps nothing and only reads from other hosts."""

    def __init__(self, settings: CacheSettings | None, share: str | None = None) -> None:
        self._report = CacheChanges()
        self.cache = None if settings is None else Cache(settings, self._report)
        self.neighbours = None
        self.share = None
        self._wanted = threading.Event()  # the servers understand reports
        if self.cache is not None:
            try:
                self.cache.adopt_orphans()
                if self.cache.settings.shared:
                    self.neighbours = Neighbours(self.cache)
                if share is not None:
                    self.share = CacheShare(self.cache, share)
                    self._report.share = self.share.told()
            except BaseException:
                self.cache.close()
                raise
        self.staging = CacheStaging(self.cache, self.neighbours)

    def registration(self) -> dict[str, Any]:
        """The cache's part of a registration; empty for a cache that is not shared."""
        if self.cache is None or self.neighbours is None:
            return {}
        return {"cache": {"path": self.cache.area.path, "space": self.cache.settings.space}}

    def start(self) -> None:
        """Start to poll neighbours."""
        if self.neighbours is not None:
            self.neighbours.start()

    def told(self, answer: dict[str, Any]) -> None:
        """An answer to a registration or a heartbeat: who else is on this host."""
        if "neighbours" not in answer:
            return
        self._wanted.set()
        if self.neighbours is not None and isinstance(answer["neighbours"], list):
            self.neighbours.told(answer["neighbours"])

    def for_job(self, held: ClaimInHand) -> InputCache:
        """The way inputs of one job take."""
        if held.job.free:
            self.make_room(held.job.free)

        def bring(spec: dict[str, Any], target: str, fetch: Fetch) -> str:
            return self.staging.bring(spec, target, fetch, held.claim, lambda: bool(held.stop_why))

        return bring

    def make_room(self, size: int) -> None:
        """Free this many bytes of disk, as far as the cache has them."""
        if self.cache is not None:
            self._carefully(lambda cache: cache.give_back(size))

    def offer(self, job: ClaimedJob, folder: str, manifest: OutputManifest) -> None:
        """Outputs that were just written: theirs to be found by the jobs that read them, once they are committed."""
        if self.cache is not None:
            self._carefully(lambda cache: cache.offer(job.claim, job.job, folder, manifest.listing))

    def settled(self, claim: str, result: str) -> None:
        """The servers have answered the end of a claim."""
        if self.cache is not None:
            self._carefully(lambda cache: cache.settle(claim, committed=result == COMMITTED))

    def release(self, claim: str) -> None:
        """A job has ended and needs its inputs no more."""
        if self.cache is not None:
            self._carefully(lambda cache: cache.release(claim))

    def _carefully(self, deed: Callable[[Cache], None]) -> None:
        """A cache in trouble costs time, never a job."""
        assert self.cache is not None  # noqa: S101 - only asked with one
        try:
            deed(self.cache)
        except Exception:
            log.exception("unexpected error in the cache")

    def request(self) -> dict[str, Any] | None:
        """The cache's report in a claim request."""
        return self._report.request() if self.cache is not None and self._wanted.is_set() else None

    def answered(self, answer: dict[str, Any] | None) -> None:
        """Process the answer to the report in a claim request; None when no answer came."""
        if answer is None:
            self._report.unanswered()
        else:
            known = answer.get("cache")
            self._report.answered(known.get("known") if isinstance(known, dict) else None)

    def close(self) -> None:
        """The pilot ends."""
        if self.neighbours is not None:
            self.neighbours.end()
        if self.share is not None:
            self.share.close()
        if self.cache is not None:
            self.cache.close()
