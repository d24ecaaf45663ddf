"""The pilots of each host, which share their cached files with each other.

One small document for each host names its pilots with a cache and the location of their files; a registration adds to it, a good-bye removes.
A heartbeat is answered from memory and never reads the store: changes at other servers are read periodically for many hosts at once, and only
while there are other servers. Dead pilots on the list are soon noticed by the pilots themselves when they access the files.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.pilots.pilot import Pilot, PilotState
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.shared.document_update import update_document

KIND = "host"
AT_ONCE = 1000
"""Hosts read together."""
DOUBTS_AT_ONCE = 100
SILENT_MILLIS = 600_000
"""Milliseconds of silence after which a pilot is removed; when it comes back it learns its neighbours, and they learn of it when it registers."""
MOST = 1000
"""The most pilots of one host that are listed; more would be a mistake."""

Neighbour = dict[str, str]


@dataclass(slots=True)
class _NeighbourHost:
    """The known pilots of one host."""

    tenant: str
    areas: dict[str, str] = field(default_factory=dict)
    """Where each pilot's cached files are."""
    read: float = -1e9
    wanted: float = 0.0
    """When one of its pilots last sent a heartbeat here."""


@dataclass(slots=True)
class NeighbourRegistry:
    """The service; one a server."""

    documents: DocumentStore
    pilots: PilotStore
    clock: Clock
    beating: Callable[[str], bool]
    """Whether a pilot sends its heartbeats to this server."""
    alone: Callable[[], bool]
    """Whether there is no other server now."""
    again: float = 15.0
    """Seconds after which possible changes by other servers are read again."""
    every: float = 1.0
    forget_after: float = 3600.0
    _hosts: dict[str, _NeighbourHost] = field(default_factory=dict)
    _places: dict[str, str] = field(default_factory=dict)
    """The host of each pilot that shares its cache and is served here."""
    _heard: set[str] = field(default_factory=set)
    """Pilots that have sent a heartbeat here."""
    _doubted: dict[str, str] = field(default_factory=dict)
    """Pilots that may be gone, with their hosts."""

    async def register(self, pilot: Pilot, area: str) -> list[Neighbour]:
        """Add a pilot to its host's list and return the others. If the store fails, the list is incomplete, but the pilot is accepted."""
        name = _name(pilot)
        host = self._hosts.setdefault(name, _NeighbourHost(pilot.tenant))
        host.wanted = self.clock.monotonic()
        self._places[pilot.id] = name
        host.areas[pilot.id] = area
        with suppress(PortError):
            await self._write(name, host, add={pilot.id: area})
        for other in host.areas:
            if other != pilot.id and not self.beating(other):
                self._doubted[other] = name  # the list must not grow for ever
        return self._others(name, pilot.id)

    def meet(self, pilot: Pilot) -> None:
        """Add a pilot that registered elsewhere, or before this server was started, and is served here now."""
        area = pilot.extra.get("cache")
        if isinstance(area, str) and pilot.id not in self._places:
            name = _name(pilot)
            self._places[pilot.id] = name
            host = self._hosts.setdefault(name, _NeighbourHost(pilot.tenant))
            host.areas[pilot.id] = area
            host.wanted = self.clock.monotonic()

    def of(self, pilot: str) -> list[Neighbour] | None:
        """The others on a pilot's host, from memory; None for a pilot that is not known to share its cache."""
        name = self._places.get(pilot)
        if name is None:
            return None
        host = self._hosts[name]
        host.wanted = self.clock.monotonic()
        self._heard.add(pilot)
        return self._others(name, pilot) if host.read > -1e9 else None

    def _others(self, name: str, pilot: str) -> list[Neighbour]:
        neighbours: list[Neighbour] = []
        for other, area in self._hosts[name].areas.items():
            if other == pilot:
                continue
            if other in self._heard and not self.beating(other):
                self._doubted[other] = name  # it is dead, has left, or sends its heartbeats to another server now
                continue
            neighbours.append({"pilot": other, "cache": area})
        return neighbours[:MOST]

    async def bye(self, pilot: str) -> None:
        """Remove a pilot that ends, so that no search for it is needed."""
        name = self._places.get(pilot)
        if name is not None:
            await self._strike(name, pilot)

    async def _strike(self, name: str, pilot: str) -> None:
        self._places.pop(pilot, None)
        self._heard.discard(pilot)
        host = self._hosts.get(name)
        if host is not None:
            host.areas.pop(pilot, None)
            with suppress(PortError):
                await self._write(name, host, drop=[pilot])

    async def run(self) -> None:
        """Read changes by other servers, until cancelled."""
        while True:
            await asyncio.sleep(self.every)
            with suppress(PortError):
                await self.look()

    async def look(self) -> None:
        """Read possible changes by other servers, and check pilots that no longer send heartbeats here."""
        now = self.clock.monotonic()
        for name in [name for name, host in self._hosts.items() if now - host.wanted > self.forget_after]:
            for pilot in self._hosts.pop(name).areas:
                self._places.pop(pilot, None)
                self._heard.discard(pilot)
        since = now - (1e8 if self.alone() else self.again)
        due = [name for name, host in self._hosts.items() if host.read < since][:AT_ONCE]
        if due:
            stored = await self.documents.get(due)
            for name in due:
                if name in self._hosts:
                    body = stored[name].document.body if name in stored else {}
                    self._take(self._hosts[name], body, now)
        await self._settle_doubts()

    async def _settle_doubts(self) -> None:
        for pilot, name in sorted(self._doubted.items())[:DOUBTS_AT_ONCE]:
            known = await self.pilots.get_pilot(pilot)
            self._doubted.pop(pilot, None)
            if known is None or self._is_over(known.pilot):
                await self._strike(name, pilot)
            elif known.pilot.state is PilotState.ALIVE and not self.alone():
                self._heard.discard(pilot)

    def _is_over(self, pilot: Pilot) -> bool:
        silent = pilot.state is PilotState.SILENT and self.clock.now() - pilot.changed > SILENT_MILLIS
        return silent or pilot.state is PilotState.GONE

    def _take(self, host: _NeighbourHost, body: object, now: float) -> None:
        areas = body.get("areas") if isinstance(body, dict) else None
        ours = {pilot: area for pilot, area in host.areas.items() if pilot in self._places}
        host.areas = {**(areas if isinstance(areas, dict) else {}), **ours}
        host.read = now

    async def _write(
        self, name: str, host: _NeighbourHost, *, add: dict[str, str] | None = None, drop: Sequence[str] = ()
    ) -> None:
        """Change the document of a host; of two concurrent writers, the second retries."""

        def changed(stored: StoredDocument | None) -> tuple[Document, dict[str, str]]:
            self._take(host, {} if stored is None else stored.document.body, self.clock.monotonic())
            areas = {pilot: area for pilot, area in {**host.areas, **(add or {})}.items() if pilot not in drop}
            return Document(name, host.tenant, KIND, {"areas": areas}), areas

        unsure = "the list of neighbours could not be stored"
        host.areas = await update_document(self.documents, name, changed, unsure=unsure)


def _name(pilot: Pilot) -> str:
    words = f"{pilot.tenant}\0{pilot.site}\0{pilot.host}"
    return f"{KIND}:{hashlib.sha256(words.encode()).hexdigest()[:40]}"
