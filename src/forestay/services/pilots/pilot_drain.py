"""Drains pilots: they take no more jobs, complete their running jobs, and exit.

The order is first recorded in the pilot's document, so that it survives server failures, and then sent through the pilot's channel:
at once by the server that holds it, within a second or two from another one. A pilot without a channel at that moment gets the order when it opens
the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.pilots.pilot import Pilot, PilotState
from forestay.ports.clock import Clock
from forestay.ports.jobs.job_store import JobStore, Record
from forestay.ports.pilots.pilot_store import PilotStore
from forestay.services.shared.document_update import update_pilot
from forestay.services.shared.recent import Recent

ORDER = "drain"
KNOWN = 10_000


class PilotSelection(NamedTuple):
    """Selects pilots of a tenant; empty fields do not restrict."""

    pilots: tuple[str, ...] = ()
    site: str = ""
    host: str = ""

    def has(self, pilot: Pilot) -> bool:
        return (
            (not self.pilots or pilot.id in self.pilots)
            and self.site in ("", pilot.site)
            and self.host in ("", pilot.host)
        )


HERE = (PilotState.ALIVE, PilotState.SILENT)


@dataclass(slots=True)
class PilotDrain:
    """The service; one a server."""

    store: JobStore
    pilots: PilotStore
    clock: Clock
    order: Callable[[str, str, Mapping[str, object]], bool]
    """Sends an order through a channel of this server; False when the channel is not here."""
    known: Recent[str, None] = field(default_factory=lambda: Recent(KNOWN))
    """Draining pilots known to this server: they get no jobs. Of those that end elsewhere, or without a word, this server does not hear; a pilot that it forgets has its order itself."""

    async def choose(self, tenant: str, wanted: PilotSelection) -> Sequence[Pilot]:
        """The pilots that are not gone; named ones are read directly, others by search."""
        if wanted.pilots:
            read = [await self.pilots.get_pilot(name) for name in wanted.pilots]
            pilots = [stored_pilot.pilot for stored_pilot in read if stored_pilot is not None]
        else:
            # One state at a time: pilots that are gone are many more, and the number of results is limited.
            pilots = [
                pilot for state in HERE for pilot in await self.pilots.find_pilots(tenant=tenant, state=state.value)
            ]
        return [
            pilot
            for pilot in pilots
            if pilot.tenant == tenant and pilot.state is not PilotState.GONE and wanted.has(pilot)
        ]

    async def drain(self, pilots: Sequence[Pilot], *, by: str, reason: str) -> None:
        """Order these pilots to drain; `Transient` if the store does not answer: repeat the call."""
        for pilot in pilots:
            await self._mark(pilot.id, f"{by}: {reason}")
            self.known[pilot.id] = None
            if not self.order(pilot.id, ORDER, {}):
                now = self.clock.now()
                body = {"order": ORDER, "pilot": pilot.id}
                await self.store.add_records(
                    [Record(f"order:{pilot.id}:{ORDER}:{now}", pilot.tenant, "order", "", now, body)]
                )

    async def _mark(self, name: str, words: str) -> None:
        def changed(pilot: Pilot) -> Pilot | None:
            return None if pilot.drain else replace(pilot, drain=words, changed=self.clock.now())

        unsure = f"the command for pilot {name} could not be stored; try again"
        await update_pilot(self.pilots, name, changed, unsure=unsure)

    async def ordered(self, pilot: str) -> bool:
        """Whether a pilot that opens a channel here has been ordered to drain; it may not have received the order."""
        stored = await self.pilots.get_pilot(pilot)
        if stored is None or not stored.pilot.drain:
            return False
        self.known[pilot] = None
        return True

    def forget(self, pilot: str) -> None:
        """Forget a pilot that is gone."""
        self.known.pop(pilot, None)
