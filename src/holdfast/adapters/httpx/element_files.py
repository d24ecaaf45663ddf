"""Files on storage elements that speak HTTP, S3 by signed addresses among them. The operator named them, so no list of hosts is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx

from holdfast.adapters.httpx.notify import certificates
from holdfast.ports.errors import Permanent, Transient

SECONDS = 30.0
GONE = (404, 410)


class HttpElementFiles:
    """Fills `ports.storage.ElementFiles`."""

    async def read(self, place: str, most: int) -> bytes | None:
        status, content = await self._call("GET", place, most)
        if status in GONE:
            return None
        if status != 200:
            raise _trouble(place, status)
        return content

    async def remove(self, place: str) -> bool:
        status, _ = await self._call("DELETE", place, 1 << 16)
        if status in GONE:
            return False
        if not 200 <= status < 300:
            raise _trouble(place, status)
        return True

    async def folders(self, place: str) -> Sequence[str]:
        raise Permanent(f"{_host(place)}: folders are not listed by HTTP")

    async def clear(self, place: str) -> int:
        raise Permanent(f"{_host(place)}: folders are not cleared by HTTP")

    async def _call(self, method: str, place: str, most: int) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(SECONDS),
                httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=certificates()) as client,
                client.stream(method, place, headers={"Accept-Encoding": "identity"}) as answer,
            ):
                content = bytearray()
                async for piece in answer.aiter_raw():
                    content += piece
                    if len(content) > most:
                        raise Permanent(f"{_host(place)}: it is larger than {most} bytes")
                return answer.status_code, bytes(content)
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"no answer from {_host(place)}: {type(error).__name__}") from error


def _trouble(place: str, status: int) -> Transient:
    """In words without the address: it may be signed."""
    return Transient(f"{_host(place)} answered {status}")


def _host(place: str) -> str:
    return httpx.URL(place).host
