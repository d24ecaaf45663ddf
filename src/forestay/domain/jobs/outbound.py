"""Which outside addresses may be called: one policy for all requests to addresses that users supply."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

_ODD = re.compile(r"[^\x21-\x5b\x5d-\x7e]")


class OutboundPolicy:
    """A list of allowed hosts.

    A host is allowed by name or as `*.domain`. A host that is allowed by its literal address (such as `127.0.0.1`), or
    whose entry is prefixed by `private:`, may be on a private network; any other name must resolve to public addresses only.
    """

    def __init__(self, allowed: tuple[str, ...], *, setting: str) -> None:
        self._private = {
            pattern.removeprefix("private:")
            for pattern in allowed
            if pattern.startswith("private:") or _literal(pattern)
        }
        self._allowed = tuple(pattern.removeprefix("private:") for pattern in allowed)
        self._setting = setting

    @classmethod
    def only(cls, *urls: str, setting: str) -> OutboundPolicy:
        """A policy that allows only the hosts of addresses that an administrator configured, which may be on a private network."""
        hosts = {urlsplit(url).hostname for url in urls}
        return cls(tuple(sorted(f"private:{host}" for host in hosts if host)), setting=setting)

    def refuses(self, host: str) -> str | None:
        """Why this host may not be called, or None."""
        if any(_matches(host, pattern) for pattern in self._allowed):
            return None
        return f"host {host} is not an allowed host; an administrator can set {self._setting}"

    def check(self, url: str) -> str | None:
        """Why this address may not be called, or None."""
        if _ODD.search(url):
            return "spaces, control characters, backslashes and non-ASCII characters must be percent-encoded"
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            return "it is not a URL"
        if parts.scheme not in ("http", "https"):
            return "only http and https are allowed"
        if not host or parts.username or parts.password or len(url) > 2000:
            return "it needs a host, no credentials, and at most 2,000 characters"
        return self.refuses(host)

    def may_be_private(self, host: str) -> bool:
        """Whether this host may be on a private network."""
        return any(_matches(host, pattern) for pattern in self._private)


def _matches(host: str, pattern: str) -> bool:
    return host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))


def _literal(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
