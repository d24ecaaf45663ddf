"""The only HTTP client for outgoing requests: it calls listed hosts only, connects to the address that was checked, and follows no redirect.

A name is resolved once for each connection, all its addresses must be allowed, and the connection goes to that address and is verified by the
name's own certificate. No redirect is followed, no proxy of the environment used, no cookie kept.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from forestay.adapters.private_file import must_be_private
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.ports.errors import Permanent, Transient


class PinnedTransport(httpx.AsyncHTTPTransport):
    """Resolves a host itself, and connects to the checked address."""

    def __init__(self, allowed: OutboundPolicy, **options: Any) -> None:
        super().__init__(trust_env=False, **options)
        self._allowed = allowed

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # The host as the library itself parses the URL, so that check and connection cannot differ.
        url, host = request.url, request.url.raw_host.decode("ascii")
        if why := self._allowed.refuses(host):
            raise Permanent(why)
        port = url.port or (443 if url.scheme == "https" else 80)
        address = await resolved(self._allowed, host, port)
        request.url = url.copy_with(host=f"[{address}]" if ":" in address else address)
        request.extensions = {**request.extensions, "sni_hostname": host}
        return await super().handle_async_request(request)


def guarded_client(
    allowed: OutboundPolicy,
    *,
    seconds: float | None = None,
    connect: float | None = None,
    verify: ssl.SSLContext | None = None,
    keep: bool = False,
) -> httpx.AsyncClient:
    """A client for these hosts only. `seconds` limits each wait; the caller limits the whole. `keep`: connections are reused, for one host only."""
    # Kept connections are identified by their address, which two names may share.
    limits = httpx.Limits(max_keepalive_connections=4 if keep else 0)
    transport = PinnedTransport(allowed, verify=verify or certificates(), limits=limits)
    timeout = httpx.Timeout(seconds, connect=connect or seconds)
    return httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False, timeout=timeout)


async def resolved(allowed: OutboundPolicy, host: str, port: int) -> str:
    """The address of an allowed host; `Permanent` if the host may not have that address."""
    loop = asyncio.get_running_loop()
    try:
        found_addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Transient(f"host {host} could not be resolved") from error
    addresses = [str(address[4][0]) for address in found_addresses]
    private = allowed.may_be_private(host)
    for address in addresses:
        if not private and not ipaddress.ip_address(address).is_global:
            raise Permanent(f"host {host} resolves to {address}, which is not a public address")
    return addresses[0]


async def bounded(answer: httpx.Response, most: int, *, raw: bool = False) -> bytes:
    """The response body, up to `most` bytes; `ValueError` if it is longer. `raw`: not decoded."""
    content = bytearray()
    async for piece in answer.aiter_raw() if raw else answer.aiter_bytes():
        content += piece
        if len(content) > most:
            raise ValueError(f"more than {most} bytes")
    return bytes(content)


@cache
def certificates() -> ssl.SSLContext:
    """The certificate authorities; read once, since that takes longer than a call."""
    return httpx.create_ssl_context()


def certificates_with(ca: Path | None = None, certificate: Path | None = None) -> ssl.SSLContext:
    """A context with own certificate authorities, and with the client certificate for servers that ask for one: a file with it and its key."""
    if ca is None and certificate is None:
        return certificates()
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    if certificate is not None:
        must_be_private(certificate, "it holds a key")
        context.load_cert_chain(certificate)
    return context
