"""Determines which runs are over for good: the run itself has ended, and so have all runs for which it was started.

As long as a parent run runs it may read the outputs of its sub-flows' jobs, and have them undone when it fails. The parent of a run is known to the engine until it
forgets the run, and to the store where a sub-flow was placed or a worklet started.
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
    """Caches its results; create a new one for every round."""

    engine: FlowEngine
    store: JobStore
    documents: DocumentStore
    _known: dict[str, bool | None] = field(default_factory=dict)
    _open_since: dict[str, int] = field(default_factory=dict)

    async def over(self, run: str, tenant: str, at: int) -> bool:
        """Whether the outputs of a run's job, last written at ``at`` (milliseconds since 1970), can no longer be requested."""
        if run not in self._known:
            self._known[run] = await self._all_ended(run)
        known = self._known[run]
        # Its parent is forgotten: compare with the running runs, since one that began later cannot be its parent.
        return at < await self._oldest_open(tenant) if known is None else known

    async def _all_ended(self, run: str) -> bool | None:
        """Whether this run and all above it have ended; None: the engine has forgotten one whose parent is unknown."""
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
        """The start of a tenant's oldest open run."""
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
