"""Sends lineage to a server that accepts OpenLineage events, one for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import httpx
import orjson

from forestay.adapters.httpx.guarded import bounded, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Transient

SECONDS = 10.0
MAX_ANSWER = 65_536
_LATER = frozenset({401, 403, 404, 408, 425, 429})
"""Refusals that an administrator can fix, or that pass with time."""


class WebLineage:
    """Implements `ports.operations.lineage.Lineage`."""

    def __init__(self, url: str, token: Callable[[], str] | None = None) -> None:
        self._url = url
        self._token = token
        allowed = OutboundPolicy.only(url, setting="lineage")
        self._client = guarded_client(allowed, seconds=SECONDS, keep=True)

    async def send(self, events: Sequence[Mapping[str, object]]) -> int:
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token()}"
        refused = 0
        for event in events:
            try:
                async with (
                    asyncio.timeout(SECONDS),
                    self._client.stream("POST", self._url, content=orjson.dumps(event), headers=headers) as answer,
                ):
                    with suppress(ValueError):
                        await bounded(answer, MAX_ANSWER, raw=True)
            except (TimeoutError, httpx.HTTPError, OSError) as error:
                raise Transient(f"the lineage server does not respond: {type(error).__name__}") from error
            if answer.is_success:
                continue
            if answer.status_code >= 500 or answer.status_code in _LATER or answer.is_redirect:
                raise Transient(f"the lineage server answered {answer.status_code}")
            refused += 1
        return refused
