"""Removes the oldest entries of the audit log, where the operator sets a period for it.

The log is a chain: an entry in its middle cannot be removed unnoticed. Its beginning can, if the chain itself says so: an entry names the last entry that is removed
and its hash, and only then are the pages up to there removed. `forestay audit verify` begins at the first entry that is left, and accepts the gap before it only with
that entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.exceptions.safeguards.audit import PRUNED, AuditHead, AuditNote, head_of
from forestay.ports.exceptions.audit import AuditStore
from forestay.services.exceptions.record.audit_log import AuditLog
from forestay.services.operations.batch_pause import BatchPause

PAGES = 50
"""Pages that are read at once; each has up to 200 entries."""
MOST_AT_ONCE = 2_000
"""Pages of one removal, after which the chain names the next."""


@dataclass(slots=True)
class AuditPruner:
    """The service."""

    store: AuditStore
    log: AuditLog

    async def prune(self, before: int, pause: BatchPause) -> int:
        """Remove pages whose entries were all written before then (milliseconds since 1970); returns how many."""
        removed = 0
        for tenant in await self.store.tenants():
            while (last := await self._last_old(tenant, before)) is not None:
                detail = {"number": last.number, "hash": last.hash}
                why = "older than the audit log is kept"
                await self.log.write(tenant, [AuditNote("retention", PRUNED, "audit", why, detail)])
                gone = await self.store.remove_first(tenant, last.page)
                removed += gone
                await pause.rest()
                if gone < MOST_AT_ONCE:
                    break
        return removed

    async def _last_old(self, tenant: str, before: int) -> AuditHead | None:
        """The end of the old pages, of which there may be more than are removed at once; None: no page is old."""
        entry, found = 0, 0
        last: AuditHead | None = None
        while found < MOST_AT_ONCE:
            pages = await self.store.find(tenant, entry=entry, limit=PAGES)
            old = [page for page in pages if page.entries[-1].at < before]
            found += len(old)
            if old:
                last = head_of(old[-1])
                entry = last.number + 1
            if len(old) < PAGES:
                break
        return last
