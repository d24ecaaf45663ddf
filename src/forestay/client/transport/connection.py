"""The server's address, and how a connection is set up."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from forestay.client.transport.errors import BadSettings

TIMEOUT = httpx.Timeout(60.0, connect=10.0)
"""A server may take a while for 10,000 jobs; to be connected takes no time."""


class Servers:
    """The servers of one installation, in the order given; one that is away is followed by the next."""

    def __init__(self, addresses: str | Sequence[str]) -> None:
        given_addresses = addresses.split(",") if isinstance(addresses, str) else addresses
        self.addresses = [checked_address(address) for address in given_addresses if address.strip()]
        if not self.addresses:
            raise BadSettings("no server is configured")
        self._at = 0

    @property
    def current(self) -> str:
        return self.addresses[self._at]

    def next(self) -> None:
        self._at = (self._at + 1) % len(self.addresses)


class HangUp:
    """A way for one thread to end the stream that another one reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.done = False

    def attach(self, answer: httpx.Response) -> None:
        """This stream is meant from now on."""
        stream = answer.extensions.get("network_stream")
        with self._lock:
            self._socket = stream.get_extra_info("socket") if stream is not None else None
        if self.done:
            self.now()

    def now(self) -> None:
        """Close the connection; readers get an error, and connections opened later are closed, too."""
        self.done = True
        with self._lock, suppress(OSError):
            if self._socket is not None:
                # Closing alone would not wake the reader.
                self._socket.shutdown(socket.SHUT_RDWR)


def checked_address(address: str) -> str:
    """The address of a server without the slash at its end."""
    address = address.strip().rstrip("/")
    try:
        parts = urlsplit(address)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise BadSettings(
            f"{address!r} is not the address of a server; it looks like https://forestay.example.org:8443"
        )
    if parts.username or parts.password:
        raise BadSettings("a server's address must not contain a user or password; put the token into a file")
    return address


def on_this_machine(address: str) -> bool:
    """Whether an address is a loopback one."""
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_client_options(servers: Servers, token: str) -> dict[str, Any]:
    """Options for httpx. Redirects are not followed: a token goes only where it was sent."""
    from forestay.client.transport.settings import find_tls  # which reads addresses by this module

    secure = any(address.startswith("https:") for address in servers.addresses)
    tls = find_tls() if secure else None
    local = all(on_this_machine(address) for address in servers.addresses)
    if local and not secure:
        # Nothing will be encrypted, so no certificates are read, which takes as long as a whole call. This context trusts no certificate.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return ({} if tls is None else {"verify": tls}) | {
        "timeout": TIMEOUT,
        "follow_redirects": False,
        # A proxy of the site cannot reach a server on this machine.
        "trust_env": not local,
        "headers": {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json",
            "User-Agent": "forestay-client",
        },
    }
