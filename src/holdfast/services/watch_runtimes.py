"""Alerts when a job runs longer than was expected of it: once an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.domain.jobs.job_document import JobDocument, State
from holdfast.ports.clock import Clock
from holdfast.ports.errors import PortError
from holdfast.ports.job_store import JobQuery, JobStore, Record


@dataclass(slots=True)
class WatchRuntimes:
    """The service; alerts are create-only records, so any number of these may run."""

    store: JobStore
    clock: Clock
    every: float = 5.0
    raised: Callable[[JobDocument], None] = lambda _document: None
    alerts: int = 0
    _standing: set[str] = field(default_factory=set)
    """The alerts of those that were late in the last look."""

    async def run(self) -> None:
        while True:
            with suppress(PortError):
                await self.look()
            await asyncio.sleep(self.every)

    async def look(self) -> None:
        """Raise an alert for every attempt past its time that has none yet."""
        now = self.clock.now()
        standing: set[str] = set()
        query = JobQuery(states=frozenset({State.RUNNING}), at_most={"overdue": now})
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="overdue", limit=1000, cursor=cursor)
            late = {alert.id: (alert, one.document) for one in page.jobs for alert in [_alert(one.document, now)]}
            standing |= late.keys()
            # What stands already is not sent again: each repeat would cost the store a write.
            fresh = [one for name, one in late.items() if name not in self._standing]
            new = await self.store.add_records([alert for alert, _ in fresh]) if fresh else ()
            for (_, document), raised in zip(fresh, new, strict=True):
                if raised:
                    self.alerts += 1
                    self.raised(document)
            cursor = page.cursor
            if cursor is None:
                self._standing = standing
                return


def _alert(document: JobDocument, now: int) -> Record:
    held = document.claim
    assert held is not None  # noqa: S101 - overdue is derived from the claim
    running = (now - held.granted) // 1000
    words = (
        f"job {document.name} of {document.owner} has run for {running} s on {held.host}; "
        f"{document.expected_runtime} s were expected"
    )
    body = {"alert": "past-expected-runtime", "words": words, "attempt": document.attempt, "pilot": held.pilot}
    name = f"alert:runtime:{document.id}:{document.generation}.{document.attempt}"
    return Record(name, document.tenant, "alert", document.id, now, body)
