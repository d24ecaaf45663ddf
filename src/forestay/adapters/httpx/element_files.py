"""Files on storage elements over HTTP, including S3 by signed URLs. The operator configured the elements, so only their hosts are allowed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx

from forestay.adapters.httpx.guarded import bounded, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Permanent, Transient

SECONDS = 30.0
GONE = (404, 410)


class HttpElementFiles:
    """Implements `ports.data.storage.ElementFiles`."""

    def __init__(self, allowed: OutboundPolicy) -> None:
        self._allowed = allowed

    async def read(self, place: str, most: int) -> bytes | None:
        status, content = await self._call("GET", place, most)
        if status in GONE:
            return None
        if status != 200:
            raise _trouble(place, status)
        return content

    async def remove(self, place: str, within: str) -> bool:
        status, _ = await self._call("DELETE", place, 1 << 16)
        if status in GONE:
            return False
        if not 200 <= status < 300:
            raise _trouble(place, status)
        return True

    async def folders(self, place: str) -> Sequence[str]:
        raise Permanent(f"{_host(place)}: folders cannot be listed over HTTP")

    async def clear(self, place: str) -> int:
        raise Permanent(f"{_host(place)}: folders cannot be cleared over HTTP")

    async def _call(self, method: str, place: str, most: int) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(SECONDS),
                guarded_client(self._allowed) as client,
                client.stream(method, place, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                return answer.status_code, await bounded(answer, most, raw=True)
        except ValueError as error:
            raise Permanent(f"{_host(place)}: it has {error}") from error
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"no response from {_host(place)}: {type(error).__name__}") from error


def _trouble(place: str, status: int) -> Transient:
    """The error, without the URL: it may be signed."""
    return Transient(f"{_host(place)} answered {status}")


def _host(place: str) -> str:
    return httpx.URL(place).host
