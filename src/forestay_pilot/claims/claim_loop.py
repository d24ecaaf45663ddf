"""The claim loop: requests as much work as there are free slots, and handles the response.

Only an answer that arrived makes a claim ours. One that comes after its request was given up is never read:
its connection is closed, the claim is not named in heartbeats, and the servers free it. The answers to completions
bring work as well (`work_requests`); the loop waits for it where they do not.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING

from forestay_pilot.link.server_link import LinkError, ServerLink, ServerRing, UnavailableError

if TYPE_CHECKING:
    from forestay_pilot.claims.completion_queue import CompletionQueue
    from forestay_pilot.claims.work_requests import WorkRequests
    from forestay_pilot.link.held_claims import HeldClaims
    from forestay_pilot.link.identity import PilotIdentity

log = logging.getLogger("forestay_pilot")

_ANSWER_MARGIN = 10.0
_LONGEST_WAIT = 5.0
_TURN = 0.2


class ClaimLoop(threading.Thread):
    """The thread that claims, on a connection of its own."""

    def __init__(
        self,
        ring: ServerRing,
        identity: PilotIdentity,
        held: HeldClaims,
        requests: WorkRequests,
        ends: CompletionQueue,
        *,
        wait: float,
    ) -> None:
        super().__init__(name="claims", daemon=True)
        self._identity = identity
        self._held = held
        self._requests = requests
        self._ends = ends
        self._wait = wait
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
        if not self._held.wait_for_room(1.0):
            return
        if self._requests.may_claim() <= 0:
            self._ended.wait(_TURN)
            return
        self._ends.wait_taken(_TURN)
        # Answered before two heartbeats have passed, or what it brings is freed by then.
        wait = min(self._wait, self._identity.status.heartbeat_every / 2)
        request = None if self._ended.is_set() else self._requests.begin(wait=wait, patience=_TURN)
        if request is None:
            return
        answer = None
        try:
            answer = self._identity.call(
                self._link, "POST", "/claims", request.body, timeout=wait + _ANSWER_MARGIN, everywhere=False
            )
        finally:
            request.end(answer)
