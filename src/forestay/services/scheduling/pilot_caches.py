"""The cache contents of each pilot, as reported with its requests for work, and who can serve a file to whom.

Kept only in this server's memory, and bounded: a pilot whose report does not continue the known state sends a complete report. So a restarted server, or one that
a pilot contacts for the first time, is complete after two requests. Nothing here is ever needed for correctness.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.scheduling.cache_index import CacheIndex, Key
from forestay.ports.clock import Clock

MOST_PILOTS = 100_000
MOST_FILES = 2_000_000
"""The most names of cached files that are kept in all."""
TICKET_SECONDS = 600
PEERS = 3
"""The most pilots named as sources of one file."""


class CacheEndpoint(NamedTuple):
    """How other hosts reach a pilot's cache. The secret is never stored nor logged."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return f"Share({self.url!r})"


@dataclass(frozen=True, slots=True)
class CacheReport:
    """A pilot's report on its cache: the changes since an earlier report, or everything with base 0."""

    version: int
    base: int = 0
    added: Sequence[tuple[str, int]] = ()
    removed: Sequence[str] = ()
    gone: Sequence[str] = ()
    """Files whose last link on the host the pilot deleted."""
    share: CacheEndpoint | None = None


@dataclass(slots=True, eq=False)
class _KnownCache:
    tenant: str
    host: str
    site: str
    version: int = 0
    files: int = 0
    share: CacheEndpoint | None = None


class CacheListener(NamedTuple):
    """A subscriber to changes of caches."""

    on_report: Callable[[str, str, str, str, CacheReport], None]
    """Called with a pilot, its tenant, host and site, and the changes."""
    forgotten: Callable[[str, str], None]
    """Called when a pilot of a tenant was forgotten."""


@dataclass(slots=True)
class PilotCaches:
    """The service."""

    clock: Clock
    listeners: list[CacheListener] = field(default_factory=list)
    most_pilots: int = MOST_PILOTS
    most_files: int = MOST_FILES
    files: int = 0
    """The number of known names."""
    _pilots: OrderedDict[str, _KnownCache] = field(default_factory=OrderedDict)
    _cache_index: dict[str, CacheIndex] = field(default_factory=dict)
    """By tenant: a name is only meaningful within its tenant. Every pilot is a location of its own here."""
    _served: dict[str, int] = field(default_factory=dict)
    """How often a pilot was named as a source, so that one does not serve all."""

    @property
    def pilots(self) -> int:
        return len(self._pilots)

    def report(self, pilot: str, tenant: str, host: str, site: str, report: CacheReport) -> int:
        """Apply a report; returns the version that is known now. If it differs from the report's, the pilot must send a complete report."""
        known = self._pilots.get(pilot)
        if known is None or known.tenant != tenant:
            known = self._pilots[pilot] = _KnownCache(tenant, host, site)
        self._pilots.move_to_end(pilot)
        if report.base != 0 and report.base != known.version:
            return known.version
        if report.base == 0:
            self._empty(pilot, known)
        if report.share is not None:
            known.share = report.share
        if report.version != known.version or report.base == 0:
            cache_index = self._cache_index.setdefault(tenant, CacheIndex())
            cache_index.remove(pilot, pilot, report.removed)
            cache_index.add(pilot, pilot, report.added)
            for file in report.gone:
                self._gone(known.host, tenant, file)
            many = len(cache_index.of(pilot))
            self.files += many - known.files
            known.files = many
            for listener in self.listeners:
                listener.on_report(pilot, tenant, known.host, known.site, report)
        known.version = report.version
        while len(self._pilots) > self.most_pilots or (self.files > self.most_files and len(self._pilots) > 1):
            self.forget(next(iter(self._pilots)))
        return known.version

    def forget(self, pilot: str) -> None:
        """Forget a pilot that is gone, or to limit memory."""
        known = self._pilots.pop(pilot, None)
        self._served.pop(pilot, None)
        if known is None:
            return
        self._drop(pilot, known)
        for listener in self.listeners:
            listener.forgotten(pilot, known.tenant)

    def holds(self, pilot: str) -> Mapping[Key, int]:
        """The files of a pilot's cache with their sizes."""
        known = self._pilots.get(pilot)
        return self._cache_index[known.tenant].of(pilot) if known is not None and known.files else {}

    def sizes(self, tenant: str) -> Sequence[tuple[str, str, str, int]]:
        """The pilots of a tenant with a cache: pilot, host, site and number of files; the most recent reports come first."""
        known = reversed(self._pilots.items())
        return [(name, cache.host, cache.site, cache.files) for name, cache in known if cache.tenant == tenant]

    def peers_for(self, file: str, pilot: str) -> list[dict[str, object]]:
        """Pilots of the same site on other hosts that can serve a file, with a ticket each; those named least often first."""
        asking = self._pilots.get(pilot)
        cache_index = self._cache_index.get(asking.tenant) if asking is not None else None
        if asking is None or cache_index is None:
            return []
        candidates: list[tuple[int, str, _KnownCache, CacheEndpoint]] = []
        for name in cache_index.where(file):
            known = self._pilots.get(str(name))
            if known is None or known.share is None or known.site != asking.site or known.host == asking.host:
                continue
            candidates.append((self._served.get(str(name), 0), str(name), known, known.share))
            if len(candidates) >= 8 * PEERS:
                break
        candidates.sort(key=lambda candidate: candidate[:2])
        expiry = self.clock.now() // 1000 + TICKET_SECONDS
        sources: list[dict[str, object]] = []
        for _, _, known, share in candidates[:PEERS]:
            ticket = ticket_for(share.secret, file, expiry)
            sources.append({"kind": "peer", "url": share.url, "ticket": ticket, "host": known.host})
        if candidates:
            # The first is the one that will be used.
            self._served[candidates[0][1]] = candidates[0][0] + 1
        return sources

    def _gone(self, host: str, tenant: str, file: str) -> None:
        """Remove a file that no pilot of the host has any more, whatever was reported before."""
        cache_index = self._cache_index[tenant]
        for name in [str(key) for key in cache_index.where(file)]:
            known = self._pilots.get(name)
            if known is not None and known.host == host:
                cache_index.remove(name, name, [file])
                self.files -= 1
                known.files -= 1

    def _empty(self, pilot: str, known: _KnownCache) -> None:
        had = known.files
        self._drop(pilot, known)
        known.version = 0
        if had:
            for listener in self.listeners:
                listener.forgotten(pilot, known.tenant)

    def _drop(self, pilot: str, known: _KnownCache) -> None:
        cache_index = self._cache_index.get(known.tenant)
        if cache_index is not None:
            cache_index.forget(pilot, pilot)
        self.files -= known.files
        known.files = 0


def ticket_for(secret: str, file: str, expiry: int) -> str:
    """A ticket that permits its bearer to fetch one file from a pilot until `expiry`."""
    digest = hmac.new(secret.encode(), f"{file}\n{expiry}".encode(), hashlib.sha256).hexdigest()
    return f"{expiry}.{digest}"
