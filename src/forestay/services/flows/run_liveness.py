"""Knows which runs are over for good: the run itself has ended, and so have all runs for which it was started.

A run above may read what the jobs of its sub-flows made for as long as it runs, and have them undone when it fails. Who is above whom is known to the engine until it
forgets a run, and to the store where a sub-flow was placed or a worklet started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from forestay.ports.documents import DocumentStore
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import FlowEngine, RunQuery
from forestay.ports.jobs.job_store import JobStore
from forestay.services.flows.placed_runs import placed_for

NOTHING_OPEN = 1 << 62
PAGE = 1000


@dataclass(slots=True)
class RunLiveness:
    """What is found out is kept: made anew for every round."""

    engine: FlowEngine
    store: JobStore
    documents: DocumentStore
    _known: dict[str, bool | None] = field(default_factory=dict)
    _open_since: dict[str, int] = field(default_factory=dict)

    async def over(self, run: str, tenant: str, at: int) -> bool:
        """Whether nobody can ask any more for what a job of a run did that was last written then (milliseconds since 1970)."""
        if run not in self._known:
            self._known[run] = await self._all_ended(run)
        known = self._known[run]
        # Whose sub-flow it was is forgotten: then by those that run, of which one that began later cannot have been above it.
        return at < await self._oldest_open(tenant) if known is None else known

    async def _all_ended(self, run: str) -> bool | None:
        """Whether this run and all above it have ended; None: the engine has forgotten one of which nobody knows what was above."""
        while run:
            try:
                summary = await self.engine.describe(run)
            except NotFound:
                run = await self._above(run)
                if not run:
                    return None
            else:
                if summary.ended is None:
                    return False
                run = summary.above or await self._above(run)
        return True

    async def _above(self, run: str) -> str:
        record = await self.store.get_record(f"worklet:{run}")
        if record is not None:
            return str(record.body["run"])
        return await placed_for(self.documents, run)

    async def _oldest_open(self, tenant: str) -> int:
        """When the oldest run that runs in a tenant began."""
        if tenant not in self._open_since:
            oldest, cursor = NOTHING_OPEN, None
            while True:
                page = await self.engine.find(RunQuery(tenant, open=True), limit=PAGE, cursor=cursor)
                oldest = min([oldest, *(run.started for run in page.runs)])
                cursor = page.cursor
                if cursor is None:
                    break
            self._open_since[tenant] = oldest
        return self._open_since[tenant]
