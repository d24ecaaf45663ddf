"""Receives the heartbeats of pilots and stores them, many in one small document; divides the hash slots among the servers.

Each server writes only its own heartbeat pages, so nothing is version-checked. A pilot's heartbeat is acknowledged when its heartbeat page
is stored. The server's own heartbeat is on the same pages: servers detect each other's liveness by counters that increase, never by clocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from zlib import crc32

from forestay.domain.jobs.hash_slots import fallback_hash_slots, own_hash_slots
from forestay.domain.pilots.orphans import patience
from forestay.domain.pilots.pilot import Heartbeat, HeartbeatPage
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.pilots.pilot_store import PilotStore


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """Settings for storing heartbeats."""

    buckets: int = 4
    flush: float = 0.1
    """Seconds between writes while there are new heartbeats."""
    many: int = 2000
    """With more pilots than this, a heartbeat page has those that send at about the same time, so that few pages change at once; and they are written less often."""
    phases: int = 20
    """Heartbeat pages of such pilots."""
    flush_many: float = 0.5
    sweep: float = 30.0
    """Seconds after which a heartbeat page that still names pilots that moved to another page is rewritten."""
    own: float = 1.0
    """Seconds between the server's own heartbeats."""
    look: float = 2.0
    """Seconds between polls of the other servers."""
    dead_after: float = 8.0
    """Seconds after which a server whose counter has not increased gets no hash slots."""
    forget_after: float = 6.0
    """After this many times a pilot's patience without a heartbeat it is removed from our heartbeat page; longer than a reconciler's alarm
    is delayed."""


@dataclass(slots=True)
class _Bucket:
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    dirty: bool = False
    stale_since: float | None = None
    """Since when the stored page names pilots that are on another heartbeat page now."""


class Heartbeats:
    """The heartbeat service of one server."""

    def __init__(
        self,
        store: PilotStore,
        clock: Clock,
        *,
        server: str,
        url: str = "",
        settings: HeartbeatSettings | None = None,
        shared_out: Callable[[frozenset[int], frozenset[int]], None] = lambda _own, _heir: None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.server = server
        self.url = url
        self.settings = settings or HeartbeatSettings()
        self.shared_out = shared_out
        self.counter = 0
        self.alive: dict[str, str] = {server: url}
        """The live servers, with their addresses."""
        self._buckets = [_Bucket() for _ in range(self.settings.buckets + self.settings.phases)]
        self._on: dict[str, int] = {}
        """The heartbeat page of each pilot."""
        self._heard: dict[str, float] = {}
        self._seen: dict[str, tuple[int, float]] = {}
        self._shared_among: frozenset[str] = frozenset()
        self._wake = asyncio.Event()

    async def heartbeat(self, pilot: str, heartbeat: Heartbeat) -> None:
        """Store a pilot's heartbeat; returns when it is stored. `Transient` when it cannot be stored now."""
        now = self.clock.monotonic()
        known = self.last_heartbeat(pilot)
        bucket = self._heartbeat_page(pilot, now)
        if known is not None:
            # A repeat of an older heartbeat must not revert a newer one.
            session = max(heartbeat.session, known.session)
            newer = heartbeat if heartbeat.counter >= known.counter else known
            heartbeat = Heartbeat(newer.counter, session, newer.lease, newer.claims)
        bucket.heartbeats[pilot] = heartbeat
        bucket.dirty = True
        self._heard[pilot] = now
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bucket.waiting.append(stored)
        self._wake.set()
        await stored

    async def open_session(self, pilot: str, session: int, lease: int) -> None:
        """Store that a pilot has an open channel here, before the channel is confirmed to the pilot."""
        known = self.last_heartbeat(pilot)
        counter, claims = (known.counter, known.claims) if known else (0, ())
        await self.heartbeat(pilot, Heartbeat(counter, session, lease, claims))

    def last_heartbeat(self, pilot: str) -> Heartbeat | None:
        number = self._on.get(pilot)
        return self._buckets[number].heartbeats.get(pilot) if number is not None else None

    def forget(self, pilot: str) -> None:
        """Forget a pilot that is gone."""
        number = self._on.pop(pilot, None)
        if number is not None:
            bucket = self._buckets[number]
            del bucket.heartbeats[pilot], self._heard[pilot]
            bucket.dirty = True

    def _heartbeat_page(self, pilot: str, now: float) -> _Bucket:
        """The heartbeat page for a heartbeat that arrives now."""
        settings = self.settings
        if len(self._heard) < settings.many:
            number = crc32(pilot.encode()) % settings.buckets
        else:
            number = settings.buckets + int(now / settings.flush_many) % settings.phases
        bucket = self._buckets[number]
        before = self._on.get(pilot)
        if before != number:
            if before is not None:
                left = self._buckets[before]
                del left.heartbeats[pilot]
                if left.stale_since is None:
                    left.stale_since = now
            self._on[pilot] = number
        return bucket

    async def run(self) -> None:
        """Write heartbeat pages and watch the other servers until cancelled."""
        await asyncio.gather(self._write_loop(), self._look_loop())

    async def _write_loop(self) -> None:
        due = self.clock.monotonic()
        while True:
            now = self.clock.monotonic()
            if now >= due:
                due = now + self.settings.own
                self._buckets[0].dirty = True
                for bucket in self._buckets:
                    if bucket.stale_since is not None and now - bucket.stale_since >= self.settings.sweep:
                        bucket.dirty = True
            await self._write_dirty()
            pause = max(0.0, due - self.clock.monotonic())
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
                await asyncio.sleep(min(self._flush, pause))
            except TimeoutError:
                pass
            self._wake.clear()

    @property
    def _flush(self) -> float:
        return self.settings.flush if len(self._heard) < self.settings.many else self.settings.flush_many

    async def _write_dirty(self) -> None:
        self.counter += 1
        await asyncio.gather(*(self._write(number) for number, bucket in enumerate(self._buckets) if bucket.dirty))

    async def _write(self, number: int) -> None:
        bucket = self._buckets[number]
        waiting, bucket.waiting, bucket.dirty, bucket.stale_since = bucket.waiting, [], False, None
        heartbeat_page = HeartbeatPage(self.server, number, self.counter, self.url, dict(bucket.heartbeats))
        try:
            await self.store.put_heartbeat_page(heartbeat_page)
        except PortError as error:
            bucket.dirty = True
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(Transient(f"the heartbeat could not be stored: {error}"))
            return
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _look_loop(self) -> None:
        while True:
            # While the store does not answer, the set of live servers does not change; slots with two owners only cost conflicts.
            with suppress(PortError):
                self._look(await self.store.heartbeat_pages(but_of=self.server))
            self._forget_the_dead()
            # Reading tens of thousands of heartbeats is costly; a later detection is soon enough.
            await asyncio.sleep(self.settings.look * (1 if len(self._heard) < self.settings.many else 2))

    def _forget_the_dead(self) -> None:
        """Remove pilots that cannot be alive: the reconcilers have had time to release their claims."""
        now = self.clock.monotonic()
        for bucket in self._buckets:
            for pilot, heartbeat in list(bucket.heartbeats.items()):
                if now - self._heard[pilot] > self.settings.forget_after * patience(heartbeat.lease):
                    self.forget(pilot)

    def _look(self, heartbeat_pages: Sequence[HeartbeatPage]) -> None:
        now = self.clock.monotonic()
        newest: dict[str, int] = {}
        urls: dict[str, str] = {}
        for heartbeat_page in heartbeat_pages:
            newest[heartbeat_page.server] = max(heartbeat_page.counter, newest.get(heartbeat_page.server, 0))
            urls[heartbeat_page.server] = heartbeat_page.url
            self._let_move(heartbeat_page)
        for server, counter in newest.items():
            before = self._seen.get(server)
            if before is None:
                # The first page read may be old, but taking a live server's slots is worse than waiting.
                self._seen[server] = (counter, now)
            elif counter > before[0]:
                self._seen[server] = (counter, now)
        self._seen = {server: seen for server, seen in self._seen.items() if server in newest}
        moving = {server for server, (_, at) in self._seen.items() if now - at < self.settings.dead_after}
        self.alive = {server: urls[server] for server in sorted(moving)} | {self.server: self.url}
        if self._shared_among != self.alive.keys():
            self._shared_among = frozenset(self.alive)
            self.shared_out(own_hash_slots(self.server, self.alive), fallback_hash_slots(self.server, self.alive))

    def _let_move(self, heartbeat_page: HeartbeatPage) -> None:
        """Remove pilots that now send heartbeats to another server, unless only our page shows their newest channel."""
        for pilot, heartbeat in heartbeat_page.heartbeats.items():
            ours = self.last_heartbeat(pilot)
            if ours is not None and heartbeat.counter > ours.counter + 1 and heartbeat.session >= ours.session:
                self.forget(pilot)
