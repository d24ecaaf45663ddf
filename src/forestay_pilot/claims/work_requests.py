"""Requests for work: what they say, and what their answers bring.

One is under way at a time: by itself, while nothing is to be had, or together with completions, whose answer
then brings what the slots run next.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.process.payload import BadClaimError, ClaimedJob, read_claim

if TYPE_CHECKING:
    from forestay_pilot.cache.pilot_cache import PilotCache
    from forestay_pilot.link.held_claims import HeldClaims, SentRequest

log = logging.getLogger("forestay_pilot")

MOST_AT_ONCE = 32


class WorkRequest:
    """One request for work, from its first byte to its answer."""

    def __init__(self, body: dict[str, Any], end: Callable[[dict[str, Any] | None], None]) -> None:
        self.body = body
        self.end = end
        """To be called once with the answer; with none when none came."""


class WorkRequests:
    """Makes the requests of a pilot, for any of its threads."""

    def __init__(
        self,
        held: HeldClaims,
        *,
        may_claim: Callable[[], int],
        time_left: Callable[[], float | None],
        on_claimed: Callable[[list[ClaimedJob], SentRequest], None],
        cache: PilotCache | None = None,
        nodes: int = 1,
    ) -> None:
        self.may_claim = may_claim
        self._nodes = nodes
        self._held = held
        self._time_left = time_left
        self._on_claimed = on_claimed
        self._cache = cache
        self._under_way = threading.Lock()

    def enough_ahead(self) -> bool:
        """Whether the slots have enough to run for now, and a request for more can wait."""
        return self._held.enough_ahead()

    def begin(self, *, wait: float = 0.0, patience: float = 0.0) -> WorkRequest | None:
        """A request to be sent at once; none while there is no room, or another one is under way."""
        if not self._under_way.acquire(timeout=patience):
            return None
        request = None
        try:
            most = min(self._held.room(), MOST_AT_ONCE, self.may_claim())
            if most > 0:
                body, sent = self._body(most, wait), self._held.request()
                request = WorkRequest(body, lambda answer: self._end(body, sent, answer))
            return request
        finally:
            if request is None:
                self._under_way.release()

    def _body(self, most: int, wait: float) -> dict[str, Any]:
        """A request for work, with what changed in the cache."""
        free = self._held.free()
        if self._nodes > 1:
            free["nodes"] = self._nodes
        body = {"max": most, "wait": wait, "resources": free, "time_left": self._time_left()}
        ahead = self._held.ahead
        if ahead > 1:
            body["batch"] = ahead
        report = None if self._cache is None else self._cache.request()
        if report is not None:
            body["cache"] = report
        return body

    def _end(self, body: dict[str, Any], sent: SentRequest, answer: dict[str, Any] | None) -> None:
        try:
            if self._cache is not None and "cache" in body:
                self._cache.answered(answer)
            jobs = []
            for document in (answer or {}).get("claims") or []:
                try:
                    jobs.append(read_claim(document))
                except (BadClaimError, AttributeError) as error:
                    log.error("a claim was skipped: %s", error)  # noqa: TRY400 - the line says it all
            if jobs:
                self._on_claimed(jobs, sent)
        finally:
            self._under_way.release()
