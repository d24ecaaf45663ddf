"""The claim loop: requests as much work as there are free slots, and handles the response.

Only an answer that arrived makes a claim ours. One that comes after its request was given up is never read:
its connection is closed, the claim is not named in heartbeats, and the servers free it.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.link.server_link import LinkError, ServerLink, ServerRing, UnavailableError
from forestay_pilot.process.payload import BadClaimError, ClaimedJob, read_claim

if TYPE_CHECKING:
    from forestay_pilot.cache.pilot_cache import PilotCache
    from forestay_pilot.link.held_claims import HeldClaims, SentRequest
    from forestay_pilot.link.identity import PilotIdentity

log = logging.getLogger("forestay_pilot")

MOST_AT_ONCE = 32
_ANSWER_MARGIN = 10.0
_LONGEST_WAIT = 5.0


class ClaimLoop(threading.Thread):
    """The thread that claims, on a connection of its own."""

    def __init__(
        self,
        ring: ServerRing,
        identity: PilotIdentity,
        held: HeldClaims,
        *,
        wait: float,
        may_claim: Callable[[], int],
        time_left: Callable[[], float | None],
        on_claimed: Callable[[list[ClaimedJob], SentRequest], None],
        cache: PilotCache | None = None,
    ) -> None:
        super().__init__(name="claims", daemon=True)
        self._identity = identity
        self._held = held
        self._wait = wait
        self._may_claim = may_claim
        self._time_left = time_left
        self._on_claimed = on_claimed
        self._cache = cache
        self._link = ServerLink(ring)
        self._ended = threading.Event()

    def run(self) -> None:
        """Claim until told to end; no error ends this thread."""
        pause = 0.0
        while not self._ended.is_set():
            try:
                self._claim_once()
                pause = 0.0
            except LinkError as error:
                first = not pause
                pause = min(_LONGEST_WAIT, max(0.1, pause * 2))
                wait = pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
                if isinstance(error, UnavailableError):
                    wait = max(wait, min(error.retry_after, _LONGEST_WAIT))
                if first and not self._ended.is_set():
                    log.warning("no claims at the moment: %s", error)
                self._ended.wait(wait)
            except Exception:
                log.exception("unexpected error while claiming")
                self._ended.wait(1.0)
        self._link.close()

    def end(self) -> None:
        """Claim no more; a request under way is given up."""
        self._ended.set()
        self._link.abort()

    def _claim_once(self) -> None:
        room = self._held.wait_for_room(1.0)
        most = min(room, MOST_AT_ONCE, self._may_claim())
        if most <= 0 or self._ended.is_set():
            if room:
                self._ended.wait(0.2)
            return
        # It must be answered before two heartbeats have passed, or its claims are released by then.
        wait = min(self._wait, self._identity.status.heartbeat_every / 2)
        body = {
            "max": most,
            "wait": wait,
            "resources": self._held.free(),
            "time_left": self._time_left(),
        }
        ahead = self._held.ahead
        if ahead > 1:
            body["batch"] = ahead
        request = self._held.request()
        answer = self._ask(body, wait + _ANSWER_MARGIN)
        jobs = []
        for document in answer.get("claims") or []:
            try:
                jobs.append(read_claim(document))
            except (BadClaimError, AttributeError) as error:
                log.error("a claim was skipped: %s", error)  # noqa: TRY400 - the line says it all
        if jobs:
            self._on_claimed(jobs, request)

    def _ask(self, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Send a request for work, with what changed in the cache."""
        report = None if self._cache is None else self._cache.request()
        if report is not None:
            body["cache"] = report
        answer = None
        try:
            answer = self._identity.call(self._link, "POST", "/claims", body, timeout=timeout, everywhere=False)
        finally:
            if self._cache is not None and report is not None:
                self._cache.answered(answer)
        return answer
