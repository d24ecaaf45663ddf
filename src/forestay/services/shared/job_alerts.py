"""Raises alerts: records beside jobs, each created once, so that any number of reconcilers may raise them."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Record
from forestay.services.shared.quarantine import Quarantine


@dataclass(slots=True)
class JobAlerts(ABC):
    """The common part of services that search for jobs and raise alerts for them."""

    store: JobStore
    clock: Clock
    every: float = 5.0
    raised: Callable[[JobDocument], None] = lambda _document: None
    troubled: Callable[[str], None] = lambda _text: None
    alerts: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _status: set[str] = field(default_factory=set)
    """The alerts of the last pass."""

    async def run(self) -> None:
        while True:
            with suppress(PortError):
                await self.look()
            await asyncio.sleep(self.every)

    @abstractmethod
    async def look(self) -> None: ...

    async def raise_for(self, query: JobQuery, alert: Callable[[JobDocument], Record | None], *, sort: str) -> None:
        """Raise the alerts of all jobs of a query that have none yet."""
        status: set[str] = set()
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort=sort, limit=1000, cursor=cursor)
            due = list[tuple[Record, JobDocument]]()
            for stored in page.jobs:
                try:
                    made = alert(stored.document)
                except Exception as error:
                    why = f"{type(error).__name__}: {error}"
                    self.quarantine.report(f"job {stored.document.id}", why, self.troubled)
                    continue
                due += [(made, stored.document)] if made is not None else []
            status |= {made.id for made, _ in due}
            # Existing alerts are not sent again: each repeat would cost the store a write.
            fresh = [pair for pair in due if pair[0].id not in self._status]
            new = await self.store.add_records([made for made, _ in fresh]) if fresh else ()
            for (_, document), raised in zip(fresh, new, strict=True):
                if raised:
                    self.alerts += 1
                    self.raised(document)
            cursor = page.cursor
            if cursor is None:
                self._status = status
                return
