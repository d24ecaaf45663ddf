"""Requests to a Kubernetes API server: paced, bounded, with credentials that may be replaced while the agent runs.

An API server is shared with the whole cluster. When it asks to wait (`Retry-After`), all requests wait. A request that it turned away with that
header is repeated twice: every object has a name of its own, so a repeated creation is answered with 409 and creates nothing.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import orjson

from forestay.domain.sites.batch import SubmitRefusal
from forestay.domain.sites.pace import Pace, full, take
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, Transient

Fields = Mapping[str, Any]
MERGE_PATCH = "application/merge-patch+json"
MOST_READ = 32 * 1024 * 1024
"""Bytes of one answer; a page of 500 pods is smaller."""
PAGE = 500
MOST_PAGES = 40
LONGEST_WAIT = 30.0
"""The most seconds that a single `Retry-After` delays a request."""
REPEATS = 2
UNREACHABLE = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT})
LONGEST_TOKEN = 64 * 1024
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class NotSent(Transient):
    """The API server certainly did not execute the request."""

    def __init__(self, words: str, why: SubmitRefusal) -> None:
        super().__init__(words)
        self.why = why


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where an API server is, and the files with what it is called with."""

    address: str
    token_file: Path
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """An answer that the caller interprets: success, or a refusal."""

    status: int
    body: Fields
    at: int | None = None
    """Seconds since 1970 by the API server's clock."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The API server's own words, on one line."""
        return " ".join(str(self.body.get("message") or f"status {self.status}").split())[:2000]


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a list."""

    items: tuple[Fields, ...]
    at: int | None = None
    """Seconds since 1970 by the API server's clock."""


class KubernetesApi:
    """One API server. The files of its token and its certificate authority are read again whenever they change."""

    def __init__(
        self,
        server: ApiServer,
        *,
        clock: Clock,
        pace: Pace,
        seconds: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`transport` replaces the network, in tests."""
        self._server = server
        self._clock = clock
        self._bucket = full(pace, now=clock.monotonic())
        self._seconds = seconds
        self._sleep = sleep
        self._transport = transport
        self._resume = 0.0
        self._client: httpx.AsyncClient | None = None
        self._trusted: tuple[int, ...] = ()
        self.requests = 0
        """Requests sent so far."""

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Fields | None = None,
        content: str = "application/json",
    ) -> ApiAnswer:
        """Send one request. Raises `NotSent` if it was certainly not executed, `Transient` if that is unknown, `Permanent` if the credentials are wrong."""
        perhaps = ""  # the words of an earlier answer that leaves open whether the request was executed
        for left in range(REPEATS, -1, -1):
            await self._turn()
            try:
                answer, wait = await self._send(method, path, query or {}, body, content)
            except NotSent as error:
                if perhaps:
                    raise Transient(perhaps) from error
                raise
            if answer.status != httpx.codes.TOO_MANY_REQUESTS and answer.status < httpx.codes.INTERNAL_SERVER_ERROR:
                if answer.status == httpx.codes.UNAUTHORIZED:
                    raise Permanent(
                        f"the API server does not accept the token in {self._server.token_file}: {answer.message}"
                    )
                return answer
            words = f"the API server answered {answer.status}: {answer.message}"
            if answer.status != httpx.codes.TOO_MANY_REQUESTS:
                perhaps = words
            if wait is not None:
                self._resume = max(self._resume, self._clock.monotonic() + wait)
            if wait is None or left == 0:
                break
        if perhaps:
            raise Transient(perhaps)
        raise NotSent(words, SubmitRefusal.SCHEDULER_DOWN)

    async def list(self, path: str, **query: str) -> ObjectList:
        """The newest state of all objects of a list, in pages."""
        for _ in range(2):
            listing = await self._pages(path, query)
            if listing is not None:
                return listing
        raise Transient("the API server's list expired twice while it was read")

    async def _pages(self, path: str, query: Mapping[str, str]) -> ObjectList | None:
        """None: the list expired between two pages and has to be read again."""
        items: list[Fields] = []
        following = ""
        for _ in range(MOST_PAGES):
            page = {**query, "limit": str(PAGE)} | ({"continue": following} if following else {})
            answer = await self.call("GET", path, query=page)
            if answer.status == httpx.codes.GONE:
                return None
            if not answer.ok:
                raise Permanent(f"the API server answered {answer.status}: {answer.message}")
            found = answer.body.get("items")
            items += [resource for resource in found if isinstance(resource, dict)] if isinstance(found, list) else []
            following = str((answer.body.get("metadata") or {}).get("continue") or "")
            if not following:
                return ObjectList(tuple(items), answer.at)
        raise Transient(f"a list of the API server has more than {MOST_PAGES * PAGE:,} objects")

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        self._bucket, wait = take(self._bucket, now=now)
        wait = max(wait, self._resume - now)
        if wait > 0:
            await self._sleep(wait)

    async def _send(
        self, method: str, path: str, query: Mapping[str, str], body: Fields | None, content: str
    ) -> tuple[ApiAnswer, float | None]:
        """The answer, and for how many seconds it asks to wait."""
        client = await self._connected()
        headers = {"Authorization": f"Bearer {self._token()}", "Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"], data = content, orjson.dumps(body)
        self.requests += 1
        try:
            async with (
                asyncio.timeout(self._seconds),
                client.stream(method, path, params=dict(query), content=data, headers=headers) as response,
            ):
                raw = await _bounded(response)
                return _read(response, raw), _asked_wait(response)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise _not_connected(self._server.address, error) from error
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"the API server did not answer: {type(error).__name__}") from error

    async def _connected(self) -> httpx.AsyncClient:
        """The client; a new one after the certificate authority's file was replaced."""
        trusted = self._state_of_ca()
        if self._client is None or trusted != self._trusted:
            if self._client is not None:
                await self._client.aclose()
            self._client = httpx.AsyncClient(
                base_url=self._server.address,
                timeout=self._seconds,
                trust_env=False,
                follow_redirects=False,
                transport=self._transport,
                verify=True if self._transport is not None else self._certificates(),
            )
            self._trusted = trusted
        return self._client

    def _state_of_ca(self) -> tuple[int, ...]:
        if self._server.ca_file is None:
            return ()
        try:
            state = self._server.ca_file.stat()
        except OSError as error:
            raise Permanent(f"{self._server.ca_file} cannot be read: {error.strerror}") from error
        return (state.st_ino, state.st_size, state.st_mtime_ns)

    def _certificates(self) -> ssl.SSLContext:
        file = self._server.ca_file
        try:
            return httpx.create_ssl_context() if file is None else ssl.create_default_context(cafile=str(file))
        except (OSError, ssl.SSLError) as error:
            raise Permanent(f"{file} contains no certificate authority") from error

    def _token(self) -> str:
        file = self._server.token_file
        try:
            with file.open(encoding="ascii") as source:
                token = source.read(LONGEST_TOKEN).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Permanent(f"the token file {file} cannot be read: {getattr(error, 'strerror', 'no text')}") from error
        if not token or any(letter.isspace() for letter in token):
            raise Permanent(f"the token file {file} contains no token")
        return token


async def _bounded(response: httpx.Response) -> bytes:
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if len(content) > MOST_READ:
            raise Transient(f"an answer of the API server has more than {MOST_READ:,} bytes")
    return bytes(content)


def _read(response: httpx.Response, raw: bytes) -> ApiAnswer:
    try:
        body = orjson.loads(raw) if raw else {}
    except ValueError:
        # A proxy's page: its text says more than that it is no JSON.
        body = {"message": raw[:200].decode(errors="replace")}
    if not isinstance(body, dict):
        raise Transient("unexpected answer; is this a Kubernetes API server?")
    return ApiAnswer(response.status_code, body, _date(response.headers.get("Date")))


def _date(text: str | None) -> int | None:
    try:
        return int(parsedate_to_datetime(text).timestamp()) if text else None
    except ValueError:
        return None


def _asked_wait(response: httpx.Response) -> float | None:
    """`Retry-After` in seconds; the API server never sends a date."""
    text = response.headers.get("Retry-After", "")
    return min(LONGEST_WAIT, float(text)) if text.isdecimal() and len(text) < 10 else None


def _not_connected(address: str, error: Exception) -> Transient | Permanent:
    """The meaning of a connection that was not made: unless the network says otherwise, the host answered, and no API server."""
    network = isinstance(error, httpx.TimeoutException)
    cause: BaseException | None = error
    for _ in range(8):
        if isinstance(cause, BaseExceptionGroup):  # of several addresses
            cause = cause.exceptions[0]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Permanent(f"the certificate of {address} is not trusted: {cause.verify_message}")
        if isinstance(cause, ConnectionRefusedError):
            return NotSent(f"{address} refuses connections", SubmitRefusal.SCHEDULER_DOWN)
        network = network or isinstance(cause, socket.gaierror) or getattr(cause, "errno", None) in UNREACHABLE
        cause = None if cause is None else cause.__cause__ or cause.__context__
    if network:
        return NotSent(f"{address} cannot be reached: {type(error).__name__}", SubmitRefusal.NETWORK_DOWN)
    return NotSent(f"{address} broke the connection off", SubmitRefusal.SCHEDULER_DOWN)


def seconds_of(timestamp: object) -> int | None:
    """A time of an object, in seconds since 1970; None if there is none."""
    try:
        return int(datetime.fromisoformat(str(timestamp)).replace(tzinfo=UTC).timestamp()) if timestamp else None
    except ValueError:
        return None
