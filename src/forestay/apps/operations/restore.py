"""`forestay restored`: run by an operator who has restored the store from a backup, before anything is started on it."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Callable

from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.apps.compose.stores import Stores, open_stores
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.safeguards.audit import AuditNote
from forestay.ports.errors import Conflict
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.operations.store_generation import GenerationRaiser, RaisedGeneration
from forestay.services.pilots.reconciler_registry import EVERY, reconcilers_known
from forestay.services.shared.checked_writer import CheckedWriter

LOOK = EVERY + 2
"""Seconds within which a running server has stored its heartbeat again, and a reconciler its entry, which is less frequent."""


async def restore_store(
    settings: Settings, *, reason: str, look: float = LOOK, say: Callable[[str], None] = lambda _: None
) -> RaisedGeneration:
    """Raise the generation. `Conflict`: processes of the domain are running, which may know of changes that the store has lost."""
    stores = open_stores(settings.store_url)
    clock, by = SystemClock(), getpass.getuser()
    await stores.jobs.open()
    try:
        say(f"Checking for {look:.0f} seconds whether servers or reconcilers use this store.")
        if running := await _running(stores, clock.now(), look):
            raise Conflict(f"stop every server, reconciler and orchestrator first; still running: {', '.join(running)}")
        say("Raising the generation of every job that is not final.")
        service = GenerationRaiser(stores.jobs, stores.documents, CheckedWriter(stores.jobs), clock)
        raised = await service.run(by=by, reason=reason)
        detail = {"generation": raised.generation, "jobs": raised.jobs, "running": raised.running, "held": raised.held}
        note = AuditNote(by, "store.restored", "store", reason, detail)
        await AuditLog(stores.audit, clock, RandomIds()).write(settings.admin_tenant, [note])
        return raised
    finally:
        await stores.jobs.close()


async def _running(stores: Stores, now: int, look: float) -> list[str]:
    """Servers whose heartbeat changes while we watch, and reconcilers with a recent entry; the first ones found suffice."""
    before = {
        (heartbeat_page.server, heartbeat_page.bucket): heartbeat_page.counter
        for heartbeat_page in await stores.pilots.heartbeat_pages(fresh=True)
    }
    reconcilers = {report.name: report.at for report in await reconcilers_known(stores.documents) if report.silent(now)}
    until = time.monotonic() + look
    while True:
        heartbeat_pages = await stores.pilots.heartbeat_pages(fresh=True)
        moved = {
            heartbeat_page.server
            for heartbeat_page in heartbeat_pages
            if before.get((heartbeat_page.server, heartbeat_page.bucket)) != heartbeat_page.counter
        }
        heard = {
            report.name
            for report in await reconcilers_known(stores.documents)
            if reconcilers.get(report.name) != report.at
        }
        if moved or heard or time.monotonic() >= until:
            return [f"server {name}" for name in sorted(moved)] + [f"reconciler {name}" for name in sorted(heard)]
        await asyncio.sleep(0.5)
