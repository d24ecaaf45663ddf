"""Speaks to a TES server: kept connections, no redirects, bounded in time and size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import orjson

from holdfast.adapters.httpx.notify import certificates
from holdfast.ports.errors import NotFound, Permanent, Transient
from holdfast.ports.task_service import Json, Listed, Unreached

SECONDS = 10.0
CONNECT_SECONDS = 3.0
MAX_ANSWER = 64 << 20
STANDARD = "/ga4gh/tes/v1"
"""The path that the specification gives; used where the address has none."""
_LATER = frozenset({401, 403, 408, 425, 429})
"""Refusals that whoever looks after the servers can mend, or time."""


class HttpxTaskService:
    """Fills `ports.task_service.TaskService`."""

    def __init__(self, url: str, *, secret: str = "", most: int = 32) -> None:
        """`secret` says where the token is: `env:NAME` or `file:PATH`; it is read at every call, so that it can be changed."""
        parts = urlsplit(url)
        base = url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + STANDARD
        self._host = parts.netloc
        self._secret = secret
        self._tasks = f"{base}/tasks"
        self._client = httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            verify=certificates(),
            timeout=httpx.Timeout(SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=60.0),
        )

    async def create(self, task: Mapping[str, Any], *, key: str) -> str:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        answer = await self._ask("POST", self._tasks, content=orjson.dumps(task), headers=headers)
        made = answer.get("id")
        if not isinstance(made, str) or not made:
            raise Transient(f"{self._host} took a task and gave no id for it")
        return made

    async def get(self, task: str, *, full: bool) -> Json:
        return await self._ask("GET", self._task(task), params={"view": "FULL" if full else "MINIMAL"})

    async def listed(
        self, *, tags: Mapping[str, str], state: str = "", full: bool = False, page: str = "", size: int = 256
    ) -> Listed:
        asked: list[tuple[str, str | int | float | bool | None]] = [
            ("view", "BASIC" if full else "MINIMAL"),
            ("page_size", size),
        ]
        for name, value in tags.items():
            asked += [("tag_key", name), ("tag_value", value)]
        if state:
            asked.append(("state", state))
        if page:
            asked.append(("page_token", page))
        answer = await self._ask("GET", self._tasks, params=asked)
        tasks = answer.get("tasks")
        token = answer.get("next_page_token")
        return Listed(
            [one for one in tasks if isinstance(one, dict)] if isinstance(tasks, list) else [],
            token if isinstance(token, str) else "",
        )

    async def cancel(self, task: str) -> None:
        await self._ask("POST", f"{self._task(task)}:cancel")

    async def close(self) -> None:
        await self._client.aclose()

    def _task(self, task: str) -> str:
        return f"{self._tasks}/{quote(task, safe='')}"

    async def _ask(self, method: str, url: str, **more: Any) -> Json:
        headers = more.pop("headers", {}) | self._authorization()
        try:
            answer = await self._client.request(method, url, headers=headers, **more)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise Unreached(f"{self._host} is not reached: {type(error).__name__}") from error
        except (httpx.HTTPError, OSError) as error:
            raise Transient(f"no answer from {self._host}: {type(error).__name__}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise NotFound(f"{self._host} knows no such task")
        if not answer.is_success:
            said = " ".join(answer.text[:500].split())
            words = f"{self._host} answered {answer.status_code}: {said}"
            unsure = answer.status_code in _LATER or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
            raise (Transient if unsure else Permanent)(words)
        try:
            read = orjson.loads(answer.content) if answer.content else {}
        except orjson.JSONDecodeError as error:
            raise Transient(f"{self._host} answered with no JSON") from error
        return read if isinstance(read, dict) else {}

    def _authorization(self) -> dict[str, str]:
        kind, _, where = self._secret.partition(":")
        if not where:
            return {}
        try:
            token = os.environ[where] if kind == "env" else Path(where).read_text().strip()
        except (OSError, KeyError) as error:
            raise Transient(f"the token for {self._host} cannot be read from {self._secret}") from error
        return {"Authorization": f"Bearer {token}"}
