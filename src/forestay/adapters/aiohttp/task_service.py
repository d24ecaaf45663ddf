"""A TES server over HTTP: kept-alive connections, only to addresses of the configured host, no redirects, limits on time and size."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import orjson

from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.insertion.task_service import Json, TaskPage, Unreached

SECONDS = 10.0
CONNECT_SECONDS = 3.0
KEEP_SECONDS = 60.0
MAX_ANSWER = 64 << 20
STANDARD = "/ga4gh/tes/v1"
"""The path that the specification gives; used where the address has none."""
_LATER = frozenset({401, 403, 408, 425, 429})
"""Refusals that an administrator can fix, or that pass with time."""


class AiohttpTaskService:
    """Implements `ports.insertion.task_service.TaskService`."""

    def __init__(self, url: str, *, token: Callable[[], str] | None = None, most: int = 32) -> None:
        """`token` is read at every call, so that it can be changed."""
        parts = urlsplit(url)
        base = url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + STANDARD
        self._host = parts.netloc
        self._name = parts.hostname or ""
        self._token = token
        self._tasks = f"{base}/tasks"
        self._most = most
        self._session: aiohttp.ClientSession | None = None

    async def create(self, task: Mapping[str, Any], *, key: str) -> str:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        answer = await self._ask("POST", self._tasks, data=orjson.dumps(task), headers=headers)
        made = answer.get("id")
        if not isinstance(made, str) or not made:
            raise Transient(f"{self._host} accepted a task but returned no id")
        return made

    async def get(self, task: str, *, full: bool) -> Json:
        return await self._ask("GET", self._task(task), params={"view": "FULL" if full else "MINIMAL"})

    async def listed(
        self, *, tags: Mapping[str, str], state: str = "", full: bool = False, page: str = "", size: int = 256
    ) -> TaskPage:
        asked = [("view", "BASIC" if full else "MINIMAL"), ("page_size", str(size))]
        for name, value in tags.items():
            asked += [("tag_key", name), ("tag_value", value)]
        if state:
            asked.append(("state", state))
        if page:
            asked.append(("page_token", page))
        answer = await self._ask("GET", self._tasks, params=asked)
        tasks = answer.get("tasks")
        token = answer.get("next_page_token")
        return TaskPage(
            [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else [],
            token if isinstance(token, str) else "",
        )

    async def cancel(self, task: str) -> None:
        await self._ask("POST", f"{self._task(task)}:cancel")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _task(self, task: str) -> str:
        return f"{self._tasks}/{quote(task, safe='')}"

    def _opened(self) -> aiohttp.ClientSession:
        """The kept-alive connections; created by the first call, because they belong to its event loop."""
        if self._session is None:
            secure = self._tasks.startswith("https:")
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._most,
                    keepalive_timeout=KEEP_SECONDS,
                    ssl=_certificates() if secure else True,
                    resolver=_OneHost(self._name),
                ),
                timeout=aiohttp.ClientTimeout(total=SECONDS, sock_connect=CONNECT_SECONDS),
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _ask(self, method: str, url: str, **more: Any) -> Json:
        """One call. The library repeats a GET whose kept connection was closed, and never a POST."""
        headers = more.pop("headers", {}) | self._authorization()
        try:
            async with self._opened().request(method, url, headers=headers, allow_redirects=False, **more) as answer:
                content = await self._content(answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreached(f"{self._host} cannot be reached: {type(error).__name__}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Transient(f"no response from {self._host}: {type(error).__name__}") from error
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{self._host} has no such task")
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            text = " ".join(content[:500].decode(errors="replace").split())
            words = f"{self._host} answered {answer.status}: {text}"
            unsure = answer.status in _LATER or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            raise (Transient if unsure else Permanent)(words)
        try:
            read = orjson.loads(content) if content else {}
        except orjson.JSONDecodeError as error:
            raise Transient(f"{self._host} returned invalid JSON") from error
        return read if isinstance(read, dict) else {}

    async def _content(self, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        async for part in answer.content.iter_any():
            content += part
            if len(content) > MAX_ANSWER:
                answer.close()
                raise Transient(f"{self._host} returned more than {MAX_ANSWER} bytes")
        return bytes(content)

    def _authorization(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token()}"}


class _OneHost(aiohttp.ThreadedResolver):
    """Resolves only the host that the operator configured: the library connects to the addresses returned here."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._only = host

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        if host != self._only:
            raise OSError(f"{host} is not the configured task server")
        return await super().resolve(host, port, family)


@cache
def _certificates() -> ssl.SSLContext:
    """The system's certificate authorities; read once, since that takes longer than a call."""
    return ssl.create_default_context()
