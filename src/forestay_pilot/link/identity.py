"""The pilot's identity towards the servers: its name, its short-lived token, its lease.

The token lives in memory only. When it has run out, even by hours, it is still good for asking for the next
one. When the servers no longer know the pilot at all, it enrols again and continues under the new name; one that
enrolled with a single-use secret cannot, and ends.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Callable
from urllib.parse import quote

from forestay_pilot.clock import steady
from forestay_pilot.link.server_link import LinkError, RefusedError, ServerLink, ServerRing

log = logging.getLogger("forestay_pilot")

_CALL_SECONDS = 6.0
_ENROL_AGAIN_SECONDS = 10.0
_SECRET_MARK = "fse-"  # noqa: S105 - how secrets that are good once begin
_NEWER = frozenset({"runtimes", "devices", "features"})  # what registrations of earlier releases do not have
_UNKNOWN_PILOT = (401, 403, 404, 410)


@dataclass(frozen=True)
class Registration:
    """What the servers granted at registration."""

    pilot: str
    lease: float
    heartbeat_every: float


class PilotIdentity:
    """The pilot's name and token, shared by every thread that calls."""

    def __init__(
        self,
        ring: ServerRing,
        enrol_token: str,
        registration: dict[str, Any],
        on_stranger: Callable[[], None] = lambda: None,
        on_enrolled: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._ring = ring
        self._enrol_token = enrol_token
        self._registration = registration
        self._on_enrolled = on_enrolled
        self._on_stranger = on_stranger  # called when no server will ever know this pilot again
        self._lock = threading.Lock()
        self._link = ServerLink(ring)
        self._token = ""
        self._renew_at = 0.0
        self._enrol_again_at = 0.0
        self.status = Registration("", 600.0, 200.0)

    @property
    def pilot(self) -> str:
        """The name the servers know the pilot by."""
        return self.status.pilot

    def enrol(self) -> float:
        """Register; gives the steady time at which the request was sent. Raises LinkError."""
        with self._lock:
            return self._enrol()

    def tell(self, more: dict[str, Any]) -> None:
        """Add to what registrations say."""
        self._registration.update(more)

    def close(self) -> None:
        """Close the connection used for tokens."""
        with self._lock:
            self._link.close()

    def accept(self, token: object, seconds: object) -> None:
        """Take a token that came with a heartbeat."""
        if isinstance(token, str) and token:
            with self._lock:
                self._take(token, seconds)

    def bearer(self) -> str:
        """The token to send now."""
        return self._token

    def renew_in_time(self) -> None:
        """Renew the token when it is near its end; called now and then by a thread that may wait."""
        if steady() < self._renew_at:
            return
        with self._lock:
            try:
                self._renew()
            except (LinkError, KeyError) as error:
                # The old token may still do; a refusal of it is dealt with by call().
                self._renew_at = steady() + 5.0
                log.warning("the token could not be renewed: %s", error)

    def call(
        self,
        link: ServerLink,
        method: str,
        tail: str,
        body: dict[str, Any] | None,
        *,
        timeout: float,
        everywhere: bool = True,
    ) -> dict[str, Any]:
        """Call ``/v1/pilots/{pilot}`` + tail; a refused token is renewed and the call made once more."""
        token = self.bearer()
        try:
            return self._call(link, method, tail, body, token, timeout, everywhere)
        except RefusedError as refusal:
            if refusal.status not in _UNKNOWN_PILOT:
                raise
            self._recover(token, refusal)
            return self._call(link, method, tail, body, self._token, timeout, everywhere)

    def _call(
        self,
        link: ServerLink,
        method: str,
        tail: str,
        body: dict[str, Any] | None,
        token: str,
        timeout: float,
        everywhere: bool,  # noqa: FBT001
    ) -> dict[str, Any]:
        path = f"/v1/pilots/{quote(self.pilot, safe='')}{tail}"
        return link.call(method, path, body, token=token, timeout=timeout, everywhere=everywhere)

    def recover(self, token: str, refusal: RefusedError) -> None:
        """Get a token that is accepted again; raises LinkError when there is none."""
        self._recover(token, refusal)

    def _recover(self, token: str, refusal: RefusedError) -> None:
        with self._lock:
            if token != self._token:
                return  # another thread was quicker
            if refusal.status == 401:
                try:
                    self._renew()
                except RefusedError as hopeless:
                    refusal = hopeless
                else:
                    return
            if steady() < self._enrol_again_at:
                raise refusal
            log.warning("the servers no longer have this pilot (%s); enrolling again", refusal)
            self._enrol_again_at = steady() + _ENROL_AGAIN_SECONDS
            try:
                self._enrol()
            except RefusedError:
                if self._enrol_token.startswith(_SECRET_MARK):
                    self._on_stranger()
                raise

    def _renew(self) -> None:
        answer = self._link.call(
            "POST", f"/v1/pilots/{quote(self.pilot, safe='')}/token", {}, token=self._token, timeout=_CALL_SECONDS
        )
        self._take(str(answer["token"]), answer.get("token_seconds"))

    def _enrol(self) -> float:
        sent = steady()
        try:
            answer = self._register()
        except RefusedError as refusal:
            newer = _NEWER & self._registration.keys()
            if refusal.status != 422 or not newer:
                raise
            for name in newer:  # a server of an earlier release does not have these fields
                del self._registration[name]
            answer = self._register()
        lease = float(answer["lease"])
        self.status = Registration(
            pilot=str(answer["pilot"]), lease=lease, heartbeat_every=float(answer.get("heartbeat_every") or lease / 3)
        )
        self._take(str(answer["token"]), answer.get("token_seconds"))
        self._ring.add(url for url in answer.get("servers") or [] if isinstance(url, str))
        self._on_enrolled(answer)
        return sent

    def _register(self) -> dict[str, Any]:
        return self._link.call("POST", "/v1/pilots", self._registration, token=self._enrol_token, timeout=_CALL_SECONDS)

    def _take(self, token: str, seconds: object) -> None:
        life = float(seconds) if isinstance(seconds, (int, float)) else 900.0
        self._token = token
        self._renew_at = steady() + life * 0.75
