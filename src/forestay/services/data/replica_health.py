"""Records which replicas failed, from what pilots report about their transfers: for an hour, all jobs of the tenant try them last.

The pilot itself continues with the next replica; this saves later jobs the failed transfer.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.data.replica import Viewpoint
from forestay.domain.exceptions.evidence.redaction import redacted
from forestay.domain.jobs.inputs import produced
from forestay.ports.clock import Clock
from forestay.ports.data.catalogue import Catalogue
from forestay.ports.jobs.job_store import JobStore
from forestay.services.data.storage_access import element_path
from forestay.services.jobs.job_completions import StagingFailures

AGAIN = 60.0
"""Seconds for which the same failure is not recorded again."""
REMEMBER = 10_000


@dataclass(slots=True)
class ReplicaHealth(StagingFailures):
    """The service."""

    catalogue: Catalogue
    store: JobStore
    clock: Clock
    noted: int = 0
    _recent: OrderedDict[tuple[str, str, str], float] = field(default_factory=OrderedDict)

    async def note(self, tenant: str, staging: Sequence[Mapping[str, object]]) -> None:
        """Mark the replicas that failed according to these reports of one attempt. `Transient` if the store does not answer: only the mark is lost."""
        for entry in staging:
            name, served = str(entry.get("file") or ""), str(entry.get("element") or "")
            failed = entry.get("failed")
            if not name or not isinstance(failed, list):
                continue
            words = dict(_told(str(failure)) for failure in failed)
            for element, why in words.items():
                # An element that served the file in the end failed only temporarily.
                if element != served and self._new(tenant, name, element):
                    await self.mark(tenant, name, element, why)

    async def mark(self, tenant: str, name: str, element: str, why: str) -> bool:
        """Mark the replicas of a file on an element and return whether any is known there."""
        places = await self._places(tenant, name, element)
        for path in places:
            await self.catalogue.mark(tenant, name, element, path, bad=True, why=redacted(why))
            self.noted += 1
        return bool(places)

    async def _places(self, tenant: str, name: str, element: str) -> set[str]:
        known = (await self.catalogue.locate([name], Viewpoint(tenant)))[name]
        places = {replica.path for replica in known.replicas if replica.element == element}
        other = produced(name)
        if other is not None:
            stored = (await self.store.get([other.job])).get(other.job)
            winner = stored.document.winner if stored is not None and stored.document.tenant == tenant else None
            where = element_path(winner.manifest.path) if winner is not None and winner.manifest is not None else None
            if where is not None and where.element == element:
                places.add(f"{os.path.dirname(where.path)}/{other.path}")
        return places

    def _new(self, *key: str) -> bool:
        now = self.clock.monotonic()
        mine = (key[0], key[1], key[2])
        if now - self._recent.get(mine, -AGAIN) < AGAIN:
            return False
        self._recent[mine] = now
        self._recent.move_to_end(mine)
        while len(self._recent) > REMEMBER:
            self._recent.popitem(last=False)
        return True


def _told(line: str) -> tuple[str, str]:
    """The element named in a line, and the error."""
    element, _, words = line.partition(": ")
    return element, words
