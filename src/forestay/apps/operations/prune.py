"""`forestay prune`: removes jobs that ended long ago, at once, while the domain is running."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from contextlib import AsyncExitStack

from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.apps.compose.components import make_engine
from forestay.apps.compose.stores import open_stores
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.domain.jobs.job_document import FINAL
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.operations.job_pruner import JobPruner, Pruned


async def prune_store(
    settings: Settings,
    *,
    seconds: int,
    dry_run: bool,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Pruned:
    """Remove jobs that ended longer ago than this many seconds; `told` receives how many were examined, of how many."""
    stores, clock = open_stores(settings.store_url), SystemClock()
    before = clock.now() - 1000 * seconds
    async with AsyncExitStack() as closing:
        await stores.jobs.open()
        closing.push_async_callback(stores.jobs.close)
        engine = None
        if settings.temporal:
            engine = make_engine(settings)
            await engine.open()
            closing.push_async_callback(engine.close)
        counts = await stores.jobs.count(JobQuery(states=FINAL, at_most={"changed": before}), by="state")
        many = sum(counts.values())
        service = JobPruner(stores.jobs, stores.documents, stores.pilots, clock, engine)
        done = await service.prune(before, dry_run=dry_run, on_progress=lambda so_far: on_progress(sum(so_far), many))
        if done.removed and not dry_run:
            note = AuditNote(getpass.getuser(), "store.prune", "store", "", {"before": before, **done._asdict()})
            await AuditLog(stores.audit, clock, RandomIds()).write(settings.admin_tenant, [note])
        return done
