"""Registers a relay as a pilot, sends its heartbeats, and takes over the tasks of relays on dead servers.

A relay runs in a server. When that server is gone its claims need not wait for their lease: another relay of the same task server releases them,
claims the jobs as any pilot would, and finds their existing tasks. Nothing is sent twice because of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.pilots.pilot import CALLS_BACK, RELAY, Heartbeat, Pilot, PilotState
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.insertion.task_proxy import ENOUGH, TaskProxy
from forestay.services.jobs.claim_releaser import ClaimReleaser
from forestay.services.pilots.heartbeats import Heartbeats

DEAD_AFTER = 8.0
"""Seconds for which a server's own heartbeat may be missing."""
FRESH = 5_000
"""Milliseconds after registering its relay within which a server may not have sent a heartbeat yet."""


@dataclass(slots=True)
class ProxyPilot:
    """The service, for one relay."""

    relay: TaskProxy
    pilots: PilotStore
    heartbeats: Heartbeats
    release: ClaimReleaser
    clock: Clock
    lease: int
    every: float = 1.0
    on_event: Callable[[str, Mapping[str, object]], None] = lambda _event, _facts: None
    taken: int = 0
    _counter: int = 0
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    async def run(self) -> None:
        await self._register()
        due = 0.0
        while True:
            with suppress(PortError):
                if self.clock.monotonic() >= due:
                    await self.heartbeat()
                    due = self.clock.monotonic() + min(self.lease / 3, 20.0)
                await self.take_over()
            await asyncio.sleep(self.every)

    async def _register(self) -> None:
        now = self.clock.now()
        relay = self.relay
        pilot = Pilot(
            id=relay.pilot,
            tenant=relay.tenant,
            host=relay.name,
            site=f"{RELAY}{relay.name}",
            slots=relay.policy.most,
            resources=ENOUGH,
            lease=self.lease,
            registered=now,
            changed=now,
            extra={"server": self.heartbeats.server, CALLS_BACK: relay.policy.callback is not None},
        )
        while True:
            with suppress(PortError):
                await self.pilots.put_pilot(pilot, None)
                if await self.pilots.get_pilot(pilot.id) is not None:
                    return
            await asyncio.sleep(self.every)

    async def heartbeat(self) -> None:
        self._counter += 1
        await self.heartbeats.heartbeat(
            self.relay.pilot, Heartbeat(self._counter, 0, self.lease, self.relay.held.claims)
        )

    async def take_over(self) -> None:
        """Find servers that are gone, and release the claims of their relays to the same task server."""
        relay = self.relay
        others = [
            pilot
            for pilot in await self.pilots.find_pilots(tenant=relay.tenant, state=PilotState.ALIVE.value)
            if pilot.site == f"{RELAY}{relay.name}" and pilot.id != relay.pilot
        ]
        if not others:
            return
        dead = await self._dead()
        for pilot in others:
            server = str(pilot.extra.get("server", ""))
            known = self._seen.get(server)
            gone = server in dead or (known is None and self.clock.now() - pilot.registered > FRESH)
            if gone and server != self.heartbeats.server:
                why = "the server of its relay is gone; its task is being looked up"
                taken = await self.release.of_pilots([pilot.id], by=relay.pilot, reason=why, overlap_possible=False)
                await self.release.mark(pilot.id, PilotState.GONE, "its server is gone")
                self.taken += taken
                self.on_event("a relay is taken over", {"relay": pilot.id, "jobs": taken})

    async def _dead(self) -> set[str]:
        """Servers whose own heartbeat has stopped: detected by counters, never by clocks."""
        now = self.clock.monotonic()
        newest: dict[str, int] = {}
        for heartbeat_page in await self.pilots.heartbeat_pages(fresh=True):
            newest[heartbeat_page.server] = max(heartbeat_page.counter, newest.get(heartbeat_page.server, 0))
        self._seen = {
            server: self._seen[server] if self._seen.get(server, (-1, 0.0))[0] == counter else (counter, now)
            for server, counter in newest.items()
        }
        return {server for server, (_, since) in self._seen.items() if now - since >= DEAD_AFTER}
