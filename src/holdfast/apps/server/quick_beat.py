"""The shortest way for a beat: what a hundred thousand pilots send all the time is answered without the machinery of the other routes.

Only a request that is right in every respect is answered here. Anything else goes the usual way, and gets the usual answer.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.adapters.prometheus.metrics import Metrics
from holdfast.apps.server.desk import MAX_TOKEN, Desk
from holdfast.apps.server.models import INT64
from holdfast.domain.pilots.pilot import Beat
from holdfast.ports.errors import PortError
from holdfast.ports.identity import BadToken, Principal, Role

ROUTE = "/v1/pilots/{pilot}/beat"
_PATH = re.compile(r"/v1/pilots/([A-Za-z0-9._:-]{1,64})/beat")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KNOWN = frozenset({"counter", "session", "claims"})
MOST = 10_000


def pilot_token(desk: Desk, pilot: str, tenant: str) -> dict[str, object]:
    """A new token for a pilot."""
    seconds = desk.services.parts.settings.token_seconds
    identity = desk.services.parts.identity
    token = identity.issue(subject=pilot, tenant=tenant, roles=frozenset({Role.PILOT}), seconds=seconds)
    return {"token": token, "token_seconds": seconds}


def beat_answer(desk: Desk, who: Principal) -> dict[str, object]:
    """What a pilot is told when its beat is stored, whichever way it came."""
    services, pilot = desk.services, who.subject
    answer: dict[str, object] = {
        "token": None,
        "token_seconds": 0,
        "cancel": [],
        "drain": pilot in services.drains.known,
    }
    half = services.parts.settings.token_seconds / 2
    if who.expires - services.parts.clock.now() / 1000 < half:
        answer |= pilot_token(desk, pilot, who.tenant)
    neighbours = services.neighbours.of(pilot)
    if neighbours is not None:
        answer["neighbours"] = neighbours
    return answer


class QuickBeat:
    """Stands before all other routes."""

    def __init__(self, app: ASGIApp, desk: Desk, metrics: Metrics) -> None:
        self.app = app
        self.desk = desk
        self.seconds = desk.services.parts.settings.body_seconds
        self.times = metrics.requests.labels(ROUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith("/beat"):
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        who = self._caller(scope)
        if who is None:
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.seconds):
                message = await receive()
        except TimeoutError:
            await self.app(scope, receive, send)
            return
        beat = self._beat(message) if not message.get("more_body") else None
        if beat is None or not await self._stored(who.subject, beat):
            await self.app(scope, _again(message, receive), send)
            return
        body = orjson.dumps(beat_answer(self.desk, who))
        await send({"type": "http.response.start", "status": 200, "headers": _headers(len(body))})
        await send({"type": "http.response.body", "body": body})
        self.times.observe(time.perf_counter() - started)

    def _caller(self, scope: Scope) -> Principal | None:
        """The pilot, if it shows its own token and all is well with it and with the request's size."""
        path = _PATH.fullmatch(scope["path"])
        if path is None:
            return None
        token = b""
        for name, value in scope["headers"]:
            if name == b"authorization":
                token = value
            elif name == b"content-length" and (not value.isdigit() or int(value) > 65_536):
                return None
        if token[:7].lower() != b"bearer " or len(token) > MAX_TOKEN:
            return None
        try:
            who = self.desk.services.parts.identity.verify(token[7:].decode("ascii"))
        except (BadToken, UnicodeDecodeError):
            return None
        return who if who.subject == path[1] and who.may(Role.PILOT) else None

    def _beat(self, message: Message) -> Beat | None:
        try:
            body: Any = orjson.loads(message.get("body", b""))
        except orjson.JSONDecodeError:
            return None
        if type(body) is not dict or not body.keys() <= _KNOWN:
            return None
        counter, session, claims = body.get("counter"), body.get("session", 0), body.get("claims", [])
        if type(counter) is not int or type(session) is not int or type(claims) is not list:
            return None
        if not (0 <= counter <= INT64 and 0 <= session <= INT64 and len(claims) <= MOST):
            return None
        if not all(type(one) is str and _ID.fullmatch(one) for one in claims):
            return None
        return Beat(counter, session, self.desk.services.parts.settings.lease, tuple(claims))

    async def _stored(self, pilot: str, beat: Beat) -> bool:
        try:
            await self.desk.services.beats.beat(pilot, beat)
        except PortError:
            return False  # the usual way says so, after another try
        return True


def _headers(length: int) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", b"application/json"),
        (b"content-length", str(length).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    ]


def _again(message: Message, receive: Receive) -> Receive:
    """The request once more, from its first message."""
    first = [message]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay
