"""Calls to storage: the name is resolved once, every resulting address must be allowed, and the checked address is called."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from forestay_pilot.staging.transfer import StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.transfer import FileLocation, TransferContext


def checked_address(host: str, port: int, *, private: bool) -> str:
    """The address to call. Raises StagingError for a name that leads where it must not, OSError for one that leads nowhere."""
    found_addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(address[4][0]) for address in found_addresses]
    if not private:
        for address in addresses:
            if not ipaddress.ip_address(address).is_global:
                raise StagingError("policy", f"{host} is {address}, which is not a public address")
    return addresses[0]


def port_of(parts: SplitResult, usual: int) -> int:
    """The port of an address; raises ValueError when it is none."""
    return parts.port or usual


class StorageCall:
    """One request to a web server, over a connection of its own, under the requested host name."""

    def __init__(self, place: FileLocation, transfer: TransferContext) -> None:
        parts = urlsplit(place.at)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = port_of(parts, 443 if secure else 80)
        address = checked_address(host, port, private=place.private)
        wire = socket.create_connection((address, port), transfer.terms.timeout)
        try:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if secure:
                wire = ssl.create_default_context(cafile=transfer.ca_file).wrap_socket(wire, server_hostname=host)
        except BaseException:
            wire.close()
            raise
        self.connection = http.client.HTTPConnection(host, port, timeout=transfer.terms.timeout)
        self.connection.sock = self._wire = wire
        self._answer: http.client.HTTPResponse | None = None
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.headers = {"Host": parts.netloc.rpartition("@")[2], **place.headers}

    def answer(self) -> http.client.HTTPResponse:
        """What the server answers."""
        self._answer = self.connection.getresponse()
        return self._answer

    def __enter__(self) -> StorageCall:
        return self

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()
        self.connection.close()
        with contextlib.suppress(OSError):
            self._wire.close()  # http.client drops it when the response says "close"
