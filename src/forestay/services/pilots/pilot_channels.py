"""The open channels of pilots: sends commands through them, and detects a pilot's death when its channel closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.jobs.claim import blamed
from forestay.domain.pilots.pilot import PilotState, newest_session
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobStore, Record, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.pilots.heartbeats import Heartbeats
from forestay.services.shared.record_pages import record_pages

TOGETHER = 5
"""If more pilots than this die within one poll, their jobs are not the cause."""
HANG_UP = "hang-up"
"""The last order of a channel; it is not sent to the pilot."""


class ChannelOrder(NamedTuple):
    """A command to a pilot over its channel."""

    event: str
    data: Mapping[str, object]


@dataclass(slots=True, eq=False)
class PilotChannel:
    """One pilot's open channel on this server."""

    pilot: str
    session: int
    orders: asyncio.Queue[ChannelOrder] = field(default_factory=lambda: asyncio.Queue(1000))
    dismissed: bool = False
    """The pilot said good-bye: the closed channel does not mean that it died."""


@dataclass(slots=True)
class PilotChannels:
    """The service; one a server."""

    store: JobStore
    pilots: PilotStore
    heartbeats: Heartbeats
    release: ClaimReleaser
    clock: Clock
    granted: Callable[[Collection[str]], Sequence[Stored]] = lambda _pilots: ()
    """The claims that this server gave to pilots: released first, without waiting for a search to show them."""
    troubled: Callable[[str], None] = lambda _text: None
    """Called when closed channels could not be checked."""
    gone: Callable[[str], None] = lambda _pilot: None
    """Called for each pilot that died."""
    grace: float = 0.3
    """Seconds for a pilot that lost its channel to open a newer one."""
    doubt: float = 10.0
    """Additional seconds when this server was paused, or the store did not answer: then a live pilot had reason to
    leave, or could not show a newer channel."""
    calm_after: float = 15.0
    every: float = 1.0
    pulse: float = 0.1
    """Seconds between checks whether this server was paused."""
    deaths: int = 0
    _open: dict[str, PilotChannel] = field(default_factory=dict)
    _closed: list[PilotChannel] = field(default_factory=list)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _unsearched: list[PilotChannel] = field(default_factory=list)
    _search: asyncio.Event = field(default_factory=asyncio.Event)
    _passed: dict[str, int] = field(default_factory=dict)
    _troubled_at: float = -1e9

    @property
    def open_count(self) -> int:
        return len(self._open)

    async def open(self, pilot: str, session: int, lease: int) -> PilotChannel:
        """Open a channel; returns when the session is stored, so that any server can see it."""
        channel = PilotChannel(pilot, session)
        await self.heartbeats.open_session(pilot, session, lease)
        before = self._open.get(pilot)
        if before is None or before.session < session:
            self._open[pilot] = channel
        return channel

    def closed(self, channel: PilotChannel) -> None:
        """Handle a broken channel: unless the pilot has a newer one somewhere, it is dead."""
        if self._open.get(channel.pilot) is channel:
            del self._open[channel.pilot]
            if not channel.dismissed:
                self._closed.append(channel)
                self._wake.set()

    def dismiss(self, pilot: str) -> None:
        """Note that a pilot said good-bye."""
        if channel := self._open.get(pilot):
            channel.dismissed = True

    def hang_up(self, pilot: str) -> None:
        """Close a pilot's channel, if it is here. That does not mean that the pilot is dead: its lease decides."""
        self.dismiss(pilot)
        self.order(pilot, HANG_UP, {})

    def order(self, pilot: str, event: str, data: Mapping[str, object]) -> bool:
        """Send an order at once, if the pilot's channel is here; returns whether it is."""
        channel = self._open.get(pilot)
        if channel is None:
            return False
        with suppress(asyncio.QueueFull):
            channel.orders.put_nowait(ChannelOrder(event, data))
        return True

    async def run(self) -> None:
        """Watch for deaths and for orders left by other servers until cancelled."""
        await asyncio.gather(self._bury_loop(), self._search_loop(), self._order_loop(), self._watch_ourselves())

    async def _watch_ourselves(self) -> None:
        """Detect when this server was paused or starved: channels that closed meanwhile do not prove a pilot's death."""
        while True:
            before = self.clock.monotonic()
            await asyncio.sleep(self.pulse)
            if self.clock.monotonic() - before > 1.0:
                self._troubled_at = self.clock.monotonic()

    async def _bury_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            closed, self._closed = self._closed, []  # channels that close from here on get their own grace time
            await asyncio.sleep(self.grace)
            if self.clock.monotonic() - self._troubled_at < self.calm_after:
                await asyncio.sleep(self.doubt)
            try:
                await self._bury(closed)
            except PortError as error:
                # Not settled: check again. Until then the leases apply.
                self.troubled(f"{len(closed)} closed channel(s) could not be checked: {error}")
                self._closed += closed
                self._troubled_at = self.clock.monotonic()
                self._wake.set()

    async def _bury(self, closed: list[PilotChannel]) -> None:
        """Release at once the claims that this server gave to dead pilots; claims from other servers are searched concurrently.

        The claims are always read before the sessions. A live pilot stores its newer session before it claims
        anything more, so a claim that was read is its old one, or the session read after it shows that the pilot is alive.
        """
        granted = self.granted({channel.pilot for channel in closed})
        dead = await self._dead(closed)
        if dead:
            await self._release(granted, dead)
            self._unsearched += [channel for channel in closed if channel.pilot in dead]
            self._search.set()

    async def _search_loop(self) -> None:
        """Search for claims in a separate loop: it may take long when the store is busy, and must not delay the next death."""
        while True:
            await self._search.wait()
            self._search.clear()
            closed, self._unsearched = self._unsearched, []
            try:
                await self._search_for(closed)
            except PortError as error:
                self.troubled(f"the jobs of {len(closed)} dead pilot(s) could not be searched for: {error}")
                self._unsearched += closed
                await asyncio.sleep(self.every)
                self._search.set()

    async def _search_for(self, closed: list[PilotChannel]) -> None:
        held = await self.release.held_by(sorted({channel.pilot for channel in closed}))
        dead = await self._dead(closed)
        await self._release(held, dead)
        self.deaths += len(dead)
        for pilot in dead:
            self.heartbeats.forget(pilot)
            self.gone(pilot)
            await self.release.mark(pilot, PilotState.GONE, "its channel closed")

    async def _dead(self, closed: list[PilotChannel]) -> set[str]:
        """The pilots among them without a newer channel anywhere."""
        heartbeat_pages = await self.pilots.heartbeat_pages(fresh=True)
        return {
            channel.pilot
            for channel in closed
            if channel.pilot not in self._open and newest_session(heartbeat_pages, channel.pilot) <= channel.session
        }

    async def _release(self, held: Sequence[Stored], dead: Collection[str]) -> None:
        lost: dict[str, list[Stored]] = {}
        for stored in held:
            if stored.document.claim is not None and stored.document.claim.pilot in dead:
                lost.setdefault(stored.document.claim.pilot, []).append(stored)
        suspects: set[str] = set()
        if len(dead) <= TOGETHER:
            suspects.update(*(blamed([stored.document for stored in jobs]) for jobs in lost.values()))
        jobs = [stored for of_pilot in lost.values() for stored in of_pilot]
        reason = "its pilot died: its channel closed"
        await self.release.release(jobs, by="server", reason=reason, overlap_possible=False, suspects=suspects)

    async def _order_loop(self) -> None:
        since = self.clock.now() - 5000
        while True:
            await asyncio.sleep(self.every)
            if not self._open:
                since = self.clock.now() - 5000
                continue
            with suppress(PortError):
                async for page in record_pages(self.store, kind="order", since=since):
                    for record in page:
                        self._pass_on(record)
                since = self.clock.now() - 5000
                self._passed = {name: at for name, at in self._passed.items() if at >= since - 5000}

    def _pass_on(self, record: Record) -> None:
        if record.id in self._passed:
            return
        self._passed[record.id] = record.at
        body = dict(record.body)
        event, pilot = str(body.pop("order")), str(body.pop("pilot"))
        self.order(pilot, event, body)
