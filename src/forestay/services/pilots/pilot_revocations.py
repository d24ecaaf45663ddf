"""Revokes single pilots: their heartbeats, claims and completions are refused from then on.

It is recorded in the pilot's document, which refuses new tokens for ever, and as a record, by which the other servers learn of it within
seconds. Its jobs are not released here: the pilot may still be running them. They are released when its lease lapses, as for a silent pilot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from forestay.domain.pilots.pilot import Pilot
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.shared.document_update import update_pilot
from forestay.services.shared.record_pages import record_pages

KIND = "revoked"
DIFFER = 120_000
"""Milliseconds by which the clocks of two servers may differ, and searches may lag."""


@dataclass(slots=True)
class PilotRevocations:
    """The service; one a server."""

    store: JobStore
    pilots: PilotStore
    clock: Clock
    token_seconds: int
    """How long a pilot's token is valid: older revocations can be forgotten, because the document refuses new tokens."""
    hang_up: Callable[[str], None] = lambda _pilot: None
    """Ends the channel of a pilot, if it is held here."""
    every: float = 1.0
    known: dict[str, int] = field(default_factory=dict)
    """Revoked pilots, and when this server learned of it: their tokens have expired some time later, and they are forgotten."""

    async def revoke(self, pilot: Pilot, *, by: str, reason: str) -> None:
        """Revoke one pilot; `Transient` if the store does not answer: repeat the call."""
        await self._mark(pilot.id, f"{by}: {reason}")
        now = self.clock.now()
        body = {"pilot": pilot.id, "by": by, "reason": reason}
        await self.store.add_records([Record(f"{KIND}:{pilot.id}", pilot.tenant, KIND, "", now, body)])
        self._heard(pilot.id)

    async def _mark(self, name: str, words: str) -> None:
        def changed(pilot: Pilot) -> Pilot | None:
            return None if pilot.revoked else replace(pilot, revoked=words, changed=self.clock.now())

        unsure = f"the revocation of pilot {name} could not be stored; try again"
        await update_pilot(self.pilots, name, changed, unsure=unsure)

    async def look(self, back: int) -> None:
        """Read the revocations by other servers in the last `back` milliseconds."""
        async for page in record_pages(self.store, kind=KIND, since=self.clock.now() - back):
            for record in page:
                self._heard(str(record.body["pilot"]))

    def _heard(self, pilot: str) -> None:
        if pilot not in self.known:
            self.known[pilot] = self.clock.now()
            self.hang_up(pilot)

    def _forget(self, before: int) -> None:
        for pilot in [pilot for pilot, heard in self.known.items() if heard < before]:
            del self.known[pilot]

    async def run(self) -> None:
        """Poll for revocations by other servers until cancelled. After a start or an outage, all pilots whose tokens may still be valid are read."""
        whole = self.token_seconds * 1000 + DIFFER
        back = whole
        while True:
            try:
                await self.look(back)
                back = DIFFER
                self._forget(self.clock.now() - 2 * whole)
            except PortError:
                back = whole
            await asyncio.sleep(self.every)
