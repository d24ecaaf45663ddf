"""`forestay restored`: told by an operator who has brought the store back from a backup, before anything is started on it."""

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
"""Seconds in which a server that runs has stored its beat again, and a keeper its line, which is the rarer."""


async def restore_store(
    settings: Settings, *, reason: str, look: float = LOOK, say: Callable[[str], None] = lambda _: None
) -> RaisedGeneration:
    """Raise the generation. `Conflict`: processes of the domain run, which may know of what the store has forgotten."""
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
        await AuditLog(stores.audit, clock, RandomIds()).write(settings.house_tenant, [note])
        return raised
    finally:
        await stores.jobs.close()


async def _running(stores: Stores, now: int, look: float) -> list[str]:
    """Servers whose beat moves while we look, and keepers that were heard of lately; the first who are found are enough."""
    before = {(one.server, one.bucket): one.counter for one in await stores.pilots.sheets(fresh=True)}
    keepers = {one.name: one.at for one in await reconcilers_known(stores.documents) if one.silent(now)}
    until = time.monotonic() + look
    while True:
        sheets = await stores.pilots.sheets(fresh=True)
        moved = {one.server for one in sheets if before.get((one.server, one.bucket)) != one.counter}
        heard = {one.name for one in await reconcilers_known(stores.documents) if keepers.get(one.name) != one.at}
        if moved or heard or time.monotonic() >= until:
            return [f"server {name}" for name in sorted(moved)] + [f"keeper {name}" for name in sorted(heard)]
        await asyncio.sleep(0.5)
