"""Calls callbacks: only allowed hosts, every resolved address checked, no redirects, bounded in time and size."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from urllib.parse import urlsplit

import httpx
import orjson

from holdfast.domain.jobs.outbound import Outbound
from holdfast.formats.soap import notification
from holdfast.ports.errors import Permanent, Transient

SECONDS = 5.0
MAX_ANSWER = 65_536
GONE = 410
"""The one answer that says for good that nobody will take it."""
_NONE: Mapping[str, str] = MappingProxyType({})


class HttpxNotify:
    """Fills `ports.notify.Notify`."""

    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._outbound = Outbound(allowed, setting="callback_hosts")

    def check(self, url: str) -> str | None:
        return self._outbound.check(url)

    async def post(
        self, url: str, body: Mapping[str, object], *, delivery: str, more: Mapping[str, str] = _NONE
    ) -> None:
        if why := self.check(url):
            raise Permanent(why)
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = await resolved(self._outbound, host, port)
        # Connect to the very address that was checked, so that a second look-up cannot give another.
        shown = f"[{address}]" if ":" in address else address
        target = parts._replace(netloc=f"{shown}:{port}").geturl()
        headers = {"Host": parts.netloc, "Content-Type": "application/json", "Holdfast-Delivery": delivery, **more}
        content = orjson.dumps(body)
        if parts.fragment == "soap":
            content = notification(body).encode()
            headers |= {"Content-Type": "text/xml; charset=utf-8", "SOAPAction": '"notify"'}
        try:
            async with (
                asyncio.timeout(SECONDS),
                httpx.AsyncClient(follow_redirects=False, trust_env=False, verify=certificates()) as client,
            ):
                request = client.build_request(
                    "POST", target, content=content, headers=headers, extensions={"sni_hostname": host}
                )
                answer = await client.send(request, stream=True)
                await self._drain(answer)
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"no answer from {host}: {type(error).__name__}") from error
        if answer.status_code == GONE:
            raise Permanent(f"{host} answered {answer.status_code}")
        if not answer.is_success:  # whoever set it up wrongly may mend it
            raise Transient(f"{host} answered {answer.status_code}")

    async def _drain(self, answer: httpx.Response) -> None:
        size = 0
        async for piece in answer.aiter_raw():
            size += len(piece)
            if size > MAX_ANSWER:
                break
        await answer.aclose()


async def resolved(allowed: Outbound, host: str, port: int) -> str:
    """The address of an allowed host; `Permanent` if it is one that the host may not have."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Transient(f"host {host} could not be resolved") from error
    addresses = [str(one[4][0]) for one in found]
    private = allowed.may_be_private(host)
    for address in addresses:
        if not private and not ipaddress.ip_address(address).is_global:
            raise Permanent(f"host {host} resolves to {address}, which is not a public address")
    return addresses[0]


@cache
def certificates() -> ssl.SSLContext:
    """Whom to trust; read once, since that takes longer than a call."""
    return httpx.create_ssl_context()
