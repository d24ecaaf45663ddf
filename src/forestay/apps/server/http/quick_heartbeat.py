"""The shortest way for a heartbeat: what a hundred thousand pilots send all the time is answered from the bytes of the connection, before the machinery of the other
routes sees it.

Only a request that is right in every respect, and whole, is answered here. Anything else goes the usual way, and gets the usual answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import orjson

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.server.http.request_context import MAX_TOKEN, RequestContext
from forestay.apps.server.http.schemas import INT64
from forestay.domain.pilots.pilot import Heartbeat
from forestay.ports.operations.identity import BadToken, Principal, Role

ROUTE = "/v1/pilots/{pilot}/heartbeat"
START = b"POST /v1/pilots/"
MOST = 10_000
_FIRST = re.compile(rb"POST /v1/pilots/([A-Za-z0-9._:-]{1,64})/heartbeat HTTP/1\.1")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KNOWN = frozenset({"counter", "session", "claims"})
_LARGEST = 65_536
_HARMLESS = frozenset(
    {b"host", b"authorization", b"content-type", b"content-length", b"accept", b"accept-encoding", b"user-agent"}
)
"""Headers that change nothing about how a heartbeat is read or answered; a request with any other goes the usual way."""
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-content-type-options: nosniff\r\ncache-control: no-store\r\ncontent-length: %d\r\n\r\n"


def pilot_token(context: RequestContext, pilot: str, tenant: str) -> dict[str, object]:
    """A new token for a pilot."""
    seconds = context.services.components.settings.token_seconds
    identity = context.services.components.identity
    token = identity.issue(subject=pilot, tenant=tenant, roles=frozenset({Role.PILOT}), seconds=seconds)
    return {"token": token, "token_seconds": seconds}


def heartbeat_answer(context: RequestContext, who: Principal) -> dict[str, object]:
    """What a pilot is told when its heartbeat is stored, whichever way it came."""
    services, pilot = context.services, who.subject
    answer: dict[str, object] = {
        "token": None,
        "token_seconds": 0,
        "cancel": [],
        "drain": pilot in services.drains.known,
    }
    half = services.components.settings.token_seconds / 2
    if who.expires - services.components.clock.now() / 1000 < half:
        answer |= pilot_token(context, pilot, who.tenant)
    neighbours = services.neighbours.of(pilot)
    if neighbours is not None:
        answer["neighbours"] = neighbours
    return answer


class QuickHeartbeat:
    """Stands before all other routes."""

    def __init__(self, context: RequestContext, metrics: Metrics) -> None:
        self.context = context
        self.times = metrics.requests.labels(ROUTE)

    def take(self, data: bytes, answered: Callable[[bytes | None], None]) -> bool:
        """Take a request, if it is a good heartbeat; `answered` gets the whole answer, or none when it must go the usual way after all."""
        head, _, content = data.partition(b"\r\n\r\n")
        who = self._caller(head, len(content))
        heartbeat = self._heartbeat(content) if who is not None else None
        if who is None or heartbeat is None:
            return False
        caller, started = who, time.perf_counter()

        def stored(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                answered(None)  # the usual way says so, after another try
                return
            body = orjson.dumps(heartbeat_answer(self.context, caller))
            answered(_HEAD % len(body) + body)
            self.times.observe(time.perf_counter() - started)

        self.context.services.heartbeats.put(caller.subject, heartbeat).add_done_callback(stored)
        return True

    def _caller(self, head: bytes, length: int) -> Principal | None:
        """The pilot, if it shows its own token and all is well with it and with the request's head."""
        first, *lines = head.split(b"\r\n")
        path = _FIRST.fullmatch(first)
        if path is None or length > _LARGEST:
            return None
        values: dict[bytes, bytes] = {}
        for line in lines:
            name, colon, value = line.partition(b":")
            name = name.lower()
            if not colon or name not in _HARMLESS or name in values:
                return None
            values[name] = value.strip()
        token = values.get(b"authorization", b"")
        if values.get(b"content-length") != b"%d" % length or token[:7].lower() != b"bearer " or len(token) > MAX_TOKEN:
            return None
        try:
            who = self.context.services.components.identity.verify(token[7:].decode("ascii"))
        except (BadToken, UnicodeDecodeError):
            return None
        if who.subject in self.context.services.revocations.known:
            return None
        return who if who.subject.encode() == path[1] and who.may(Role.PILOT) else None

    def _heartbeat(self, content: bytes) -> Heartbeat | None:
        try:
            body: Any = orjson.loads(content)
        except orjson.JSONDecodeError:
            return None
        if type(body) is not dict or not body.keys() <= _KNOWN:
            return None
        counter, session, claims = body.get("counter"), body.get("session", 0), body.get("claims", [])
        if type(counter) is not int or type(session) is not int or type(claims) is not list:
            return None
        if not (0 <= counter <= INT64 and 0 <= session <= INT64 and len(claims) <= MOST):
            return None
        if not all(type(claim) is str and _ID.fullmatch(claim) for claim in claims):
            return None
        return Heartbeat(counter, session, self.context.services.components.settings.lease, tuple(claims))
