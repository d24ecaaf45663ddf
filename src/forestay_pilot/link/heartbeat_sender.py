"""Sends heartbeats: the pilot is alive and names the claims that it holds.

A heartbeat goes out every ``heartbeat_every`` from send to send. The lease runs from the sending of the last heartbeat
that was acknowledged, never from the answer, which may have been long on its way.
"""

from __future__ import annotations

import logging
import random
import threading
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.clock import steady
from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing

if TYPE_CHECKING:
    from forestay_pilot.link.held_claims import HeldClaims
    from forestay_pilot.link.identity import PilotIdentity
    from forestay_pilot.link.lease import PilotLease

log = logging.getLogger("forestay_pilot")


class HeartbeatSender(threading.Thread):
    """The thread that sends heartbeats, on a connection of its own."""

    def __init__(
        self,
        ring: ServerRing,
        identity: PilotIdentity,
        held: HeldClaims,
        *,
        session: Callable[[], int],
        on_cancel: Callable[[str], None],
        on_drain: Callable[[], None],
        lease: PilotLease,
        on_answer: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._identity = identity
        self._held = held
        self._session = session
        self._on_cancel = on_cancel
        self._on_drain = on_drain
        self._lease = lease
        self._on_answer = on_answer
        self._link = ServerLink(ring)
        self._ended = threading.Event()
        self._counter = 0

    def run(self) -> None:
        """Send heartbeats until told to end; no error ends this thread."""
        while not self._ended.is_set():
            first_sent = steady()
            try:
                self._heartbeat_once(first_sent)
            except Exception:
                log.exception("a heartbeat failed unexpectedly")
            self._ended.wait(max(0.0, first_sent + self._identity.status.heartbeat_every - steady()))
        self._link.close()

    def end(self) -> None:
        """Heartbeat no more."""
        self._ended.set()
        self._link.abort()

    def _heartbeat_once(self, first_sent: float) -> None:
        """Send one heartbeat, the same one again until it is acknowledged or the next is due."""
        every = self._identity.status.heartbeat_every
        self._counter += 1
        body = {"counter": self._counter, "session": self._session(), "claims": self._held.names()}
        wait = 0.2
        while not self._ended.is_set():
            sent = steady()
            try:
                answer = self._identity.call(
                    self._link, "POST", "/heartbeat", body, timeout=min(10.0, max(2.0, every / 2))
                )
            except LinkError as error:
                if isinstance(error, RefusedError):
                    log.warning("a heartbeat was refused: %s", error)
                if steady() + wait > first_sent + every:
                    return
                self._ended.wait(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
                wait = min(wait * 2, 2.0)
            else:
                self._held.acknowledged()
                self._lease.extend(sent + self._identity.status.lease)
                self._obey(answer)
                return

    def _obey(self, answer: dict[str, Any]) -> None:
        self._identity.accept(answer.get("token"), answer.get("token_seconds"))
        for claim in answer.get("cancel") or []:
            self._on_cancel(str(claim))
        if answer.get("drain"):
            self._on_drain()
        self._on_answer(answer)
