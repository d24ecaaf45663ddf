"""Finds claims whose pilots are gone and releases them. Any number of scanners may run at once.

A pilot's silence only counts while the servers are seen to store their heartbeats: when the store or all servers are
down, no heartbeat can arrive, so the clock is stopped; and when the store has not answered us for a while, everything is forgotten
and the watch starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import State
from forestay.domain.pilots.orphans import HeldClaim, ScannerMemory, bury, forgotten, judge, look
from forestay.domain.pilots.pilot import HeartbeatPage, PilotState, newest_heartbeats
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Record, Stored
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.pilots.batch_status import BatchStatus, dead, in_words

BLIND = 5.0
"""The most seconds that a late scan counts (this process was paused, or the store did not answer)."""


@dataclass(slots=True)
class OrphanScanner:
    """One scanner."""

    store: JobStore
    pilots: PilotStore
    clock: Clock
    release: ClaimReleaser
    lease: int = 600
    """Seconds: the lease of a pilot that never sent a heartbeat."""
    every: float = 1.0
    sweep: float | None = None
    """Seconds between sweeps over all running jobs; a third of the lease unless set."""
    drop_after: float = 3600.0
    """Seconds after which the heartbeat pages of a server whose counter no longer increases are removed."""
    alarmed: Callable[[str], None] = lambda _text: None
    batch: BatchStatus | None = None
    """Provides the batch systems' reports on silent pilots."""
    cancel_wait: float = 30.0
    """Seconds to wait for the cancellation of a silent pilot's batch job before its claims are released anyway."""
    memory: ScannerMemory = field(default_factory=ScannerMemory)
    fair: float = 0.0
    """Our monotonic time, without the times in which no heartbeat could arrive."""
    silent_found: int = 0
    forgotten_found: int = 0
    alarms: int = 0
    _failing_since: float | None = None
    _scanned_at: float | None = None
    _swept_at: float = -1e9
    _servers: dict[str, int] = field(default_factory=dict)
    _moved_at: dict[str, float] = field(default_factory=dict)
    _cancelled_at: dict[str, float] = field(default_factory=dict)

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            await self.scan()
            await asyncio.sleep(self.every)

    async def scan(self) -> None:
        """Check the heartbeats once, and periodically all running jobs."""
        began = self.clock.monotonic()
        try:
            # Fresh pages: the second that a search may lag would be added to every silence.
            heartbeat_pages = await self.pilots.heartbeat_pages(fresh=True)
            self._answered()
            self._tick(heartbeat_pages)
            await self._scan_pilots(heartbeat_pages)
            pause = self.sweep if self.sweep is not None else self.lease / 3
            if self.fair - self._swept_at >= pause:
                await self._sweep(await self.pilots.heartbeat_pages(fresh=True))
                self._swept_at = self.fair
                await self._drop_heartbeat_pages()
        except PortError:  # checked again in the next scan; the clock is stopped until then
            if self._failing_since is None:
                self._failing_since = began

    def _answered(self) -> None:
        """Record an answer of the store. Occasional failed calls are not an outage: only a lasting one restarts the watch."""
        if self._failing_since is not None and self.clock.monotonic() - self._failing_since > BLIND:
            self.memory, self._scanned_at = ScannerMemory(), None
        self._failing_since = None

    def _tick(self, heartbeat_pages: Sequence[HeartbeatPage]) -> None:
        now = self.clock.monotonic()
        servers: dict[str, int] = {}
        for heartbeat_page in heartbeat_pages:
            servers[heartbeat_page.server] = max(heartbeat_page.counter, servers.get(heartbeat_page.server, 0))
        moved = any(counter > self._servers.get(server, counter) for server, counter in servers.items())
        if self._scanned_at is not None and moved:
            self.fair += min(now - self._scanned_at, BLIND)
        if moved or self._scanned_at is None:
            self._scanned_at = now
        elif now - self._scanned_at > BLIND:
            self._scanned_at = now - BLIND
        still = {server for server, counter in servers.items() if counter <= self._servers.get(server, -1)}
        self._moved_at = {server: self._moved_at[server] if server in still else self.fair for server in servers}
        self._servers = servers

    async def _drop_heartbeat_pages(self) -> None:
        """Remove the heartbeat pages of servers that were killed; a server that comes back writes its own again."""
        for server in [name for name, at in self._moved_at.items() if self.fair - at > self.drop_after]:
            await self.pilots.drop_heartbeat_pages(server)
            del self._moved_at[server], self._servers[server]

    async def _scan_pilots(self, heartbeat_pages: Sequence[HeartbeatPage]) -> None:
        scan = look(self.memory, newest_heartbeats(heartbeat_pages), now=self.fair)
        self.memory = scan.memory
        if not scan.silent:
            return
        held = await self.release.held_by(scan.silent)
        verdict = judge(scan, {_pilot(stored) for stored in held})
        if verdict.alarm:
            await self._alarm(f"{len(scan.silent)} of {len(scan.memory.pilots)} pilots fell silent at once")
        given_up = list(verdict.idle)
        for pilot, (reason, overlap_possible) in (await self._asked(verdict.dead)).items():
            self.silent_found += await self.release.release(
                [stored for stored in held if _pilot(stored) == pilot],
                by="orphan watch",
                reason=reason,
                overlap_possible=overlap_possible,
            )
            given_up.append(pilot)
        for pilot in given_up:
            await self.release.mark(pilot, PilotState.SILENT, "no heartbeat for longer than its lease")
        # Claims that a release did not settle, or that no search has shown yet, are found by the sweep: the pilot counts as buried.
        self.memory = bury(self.memory, given_up)

    async def _asked(self, silent: Sequence[str]) -> dict[str, tuple[str, bool]]:
        """The silent pilots that are given up now, with the reason, and whether something of them may still run.

        Where the batch system can report a pilot's death, it is first asked to cancel the pilot, and the result is awaited.
        """
        launches = await self.batch.of(silent) if self.batch is not None else {}
        self._cancelled_at = {name: at for name, at in self._cancelled_at.items() if name in silent}
        askers: dict[str, tuple[str, bool]] = {}
        for name in silent:
            launch = launches.get(name)
            if launch is None or self.batch is None:
                askers[name] = ("its pilot fell silent", True)
            elif launch.end is not None:
                askers[name] = (f"its pilot fell silent; {in_words(launch)}", not dead(launch))
            elif name not in self._cancelled_at:
                await self.batch.end(launch)
                self._cancelled_at[name] = self.fair
            elif self.fair - self._cancelled_at[name] >= self.cancel_wait:
                askers[name] = ("its pilot fell silent, and its batch job did not end when it was cancelled", True)
        return askers

    async def _sweep(self, heartbeat_pages: Sequence[HeartbeatPage]) -> None:
        """Find claims that their pilots do not report."""
        heartbeats = newest_heartbeats(heartbeat_pages)
        query = JobQuery(states=frozenset({State.RUNNING}))
        running: dict[str, Stored] = {}
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="created", limit=5000, cursor=cursor)
            for job in page.jobs:
                if job.document.claim is not None:
                    running[job.document.claim.id] = job
            cursor = page.cursor
            if cursor is None:
                break
        held = [HeldClaim(stored.document.id, claim, _pilot(stored)) for claim, stored in running.items()]
        self.memory, lost = forgotten(self.memory, held, heartbeats, lease=self.lease, now=self.fair)
        # A live pilot itself reports that it does not run the job; a silent one may.
        alive = {pilot for pilot, seen in self.memory.pilots.items() if not seen.buried} & heartbeats.keys()
        for heard, reason in ((True, "its pilot does not have the claim"), (False, "its pilot is silent")):
            jobs = [running[held_claim.claim] for held_claim in lost if (held_claim.pilot in alive) is heard]
            self.forgotten_found += await self.release.release(
                jobs, by="orphan watch", reason=reason, overlap_possible=not heard, executed=not heard
            )

    async def _alarm(self, text: str) -> None:
        self.alarms += 1
        self.alarmed(text)
        now = self.clock.now()
        minute = now // 60_000
        alert = Record(f"alert:orphans:{minute}", "", "alert", "", now, {"alert": "many-orphans", "words": text})
        await self.store.add_records([alert])


def _pilot(stored: Stored) -> str:
    assert stored.document.claim is not None  # noqa: S101 - only claimed ones are kept
    return stored.document.claim.pilot
