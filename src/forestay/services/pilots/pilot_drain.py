"""Drains pilots: they take no more jobs, complete what they run, and exit.

The order is written on the pilot's document first, so that it holds whatever happens to the servers, and then passed down the pilot's channel:
at once by the server that holds it, within a second or two by another one. A pilot that was without a channel just then hears it when it opens
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

ORDER = "drain"


class PilotSelection(NamedTuple):
    """Which pilots of a tenant; what is empty does not matter."""

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
    """Passes an order down a channel that this server holds; false when it does not."""
    known: set[str] = field(default_factory=set)
    """Draining pilots that this server knows of: they are given nothing."""

    async def choose(self, tenant: str, wanted: PilotSelection) -> Sequence[Pilot]:
        """The pilots that are not gone; those that are named are read at once, others by search."""
        if wanted.pilots:
            read = [await self.pilots.get_pilot(name) for name in wanted.pilots]
            pilots = [stored_pilot.pilot for stored_pilot in read if stored_pilot is not None]
        else:
            # One state at a time: those that are gone are many more, and only so many are found at once.
            pilots = [
                pilot for state in HERE for pilot in await self.pilots.find_pilots(tenant=tenant, state=state.value)
            ]
        return [
            pilot
            for pilot in pilots
            if pilot.tenant == tenant and pilot.state is not PilotState.GONE and wanted.has(pilot)
        ]

    async def drain(self, pilots: Sequence[Pilot], *, by: str, reason: str) -> None:
        """Order these to drain; `Transient` if the store does not answer: ask again."""
        for pilot in pilots:
            await self._mark(pilot.id, f"{by}: {reason}")
            self.known.add(pilot.id)
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
        """Whether a pilot that opens a channel here has been ordered to drain; it may not have heard it."""
        stored = await self.pilots.get_pilot(pilot)
        if stored is None or not stored.pilot.drain:
            return False
        self.known.add(pilot)
        return True

    def forget(self, pilot: str) -> None:
        """The pilot is gone."""
        self.known.discard(pilot)
