"""Gates: one write holds every case of a flow, those that start later too.

A gate is a slip for each tenant and version of a flow, with the set of those who hold it. The claim path asks before it gives a job away, from a
copy that is at most half a second old; so nothing has to be written on any case or job, and nothing escapes. What runs already may end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from holdfast.domain.jobs.job_document import JobDocument
from holdfast.domain.jobs.steering import MAX_HOLDERS
from holdfast.ports.errors import Conflict, PortError, Transient
from holdfast.ports.job_store import Written
from holdfast.ports.slip_store import Slip, SlipStore

KIND = "gate"
TRIES = 10


@dataclass(slots=True)
class KeepGates:
    """The service."""

    slips: SlipStore
    every: float = 0.4
    _closed: frozenset[tuple[str, str]] = field(default_factory=frozenset)

    def gated(self, document: JobDocument) -> bool:
        """Whether nobody may claim the job, because of its flow's gate."""
        return bool(self._closed) and document.tie is not None and (document.tenant, document.tie.flow) in self._closed

    async def run(self) -> None:
        """Keep the copy fresh. While the store does not answer, the gates stay as they were known."""
        while True:
            with suppress(PortError):  # nothing can be claimed then either
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        found = await self.slips.find(KIND)
        self._closed = frozenset(
            (one.slip.tenant, str(one.slip.body["flow"])) for one in found if one.slip.body["holders"]
        )

    async def holders(self, tenant: str, version: str) -> Sequence[str]:
        """Who holds all cases of a flow now."""
        name = gate_of(tenant, version)
        stored = (await self.slips.get([name])).get(name)
        return cast("Sequence[str]", stored.slip.body["holders"]) if stored is not None else ()

    async def suspend(self, tenant: str, version: str, holder: str) -> Sequence[str]:
        """Hold every case of a flow; who holds it then. `Conflict` if too many do."""
        return await self._change(tenant, version, holder, hold=True)

    async def let_go(self, tenant: str, version: str, holder: str) -> Sequence[str]:
        """Take the own holder away; others may still hold."""
        return await self._change(tenant, version, holder, hold=False)

    async def _change(self, tenant: str, version: str, holder: str, *, hold: bool) -> Sequence[str]:
        name = gate_of(tenant, version)
        for _ in range(TRIES):
            stored = (await self.slips.get([name])).get(name)
            before = set(cast("Sequence[str]", stored.slip.body["holders"])) if stored is not None else set()
            after = sorted(before | {holder} if hold else before - {holder})
            if len(after) > MAX_HOLDERS:
                raise Conflict(f"{len(before)} hold the flow already")
            slip = Slip(name, tenant, KIND, {"flow": version, "holders": after})
            (result,) = await self.slips.put([(slip, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                return after
        raise Transient("the gate could not be written; ask again")


def gate_of(tenant: str, version: str) -> str:
    return f"gate:{tenant}:{version}"
