"""The audit log on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from sqlalchemy import select

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import translated
from forestay.adapters.sql.rows import check_key, escaped, to_json, unescaped
from forestay.adapters.sql.tables import audit
from forestay.domain.exceptions.safeguards.audit import AuditPage
from forestay.formats.rules.audit_json import page_from_json, page_to_json
from forestay.ports.exceptions.audit import MAX_PAGES


class SqlAuditStore:
    """Implements the port `AuditStore`, in the database of the job store, which opens and closes it."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database

    async def add(self, page: AuditPage) -> bool:
        key = _key(page.tenant, page.number)
        check_key(key, key)
        body = to_json(page_to_json(page), f"page {page.number} of the audit log")
        row = (key, escaped(page.tenant), page.number, page.entries[-1].number, body)
        with translated():
            return bool(await self.database.create(audit, [row]))

    async def get(self, tenant: str, numbers: Sequence[int]) -> Mapping[int, AuditPage]:
        wanted = self.database.dialect.any_of(audit.c.id, [_key(tenant, number) for number in numbers])
        pages = [_page(body) for (body,) in await self.database.rows(select(audit.c.body).where(wanted))]
        return {page.number: page for page in pages}

    async def last(self, tenant: str) -> AuditPage | None:
        wanted = select(audit.c.body).where(audit.c.tenant == escaped(tenant)).order_by(audit.c.last.desc()).limit(1)
        return next((_page(body) for (body,) in await self.database.rows(wanted)), None)

    async def find(self, tenant: str, *, entry: int, limit: int = 100) -> Sequence[AuditPage]:
        wanted = (
            select(audit.c.body)
            .where(audit.c.tenant == escaped(tenant), audit.c.last >= entry)
            .order_by(audit.c.last)
            .limit(min(limit, MAX_PAGES))
        )
        return [_page(body) for (body,) in await self.database.rows(wanted)]

    async def tenants(self) -> Sequence[str]:
        rows = await self.database.rows(select(audit.c.tenant).distinct().order_by(audit.c.tenant))
        return [unescaped(tenant) for (tenant,) in rows]

    async def remove_first(self, tenant: str, last: int) -> int:
        # Oldest first, so that a removal that breaks off leaves no gap between pages.
        return await self.database.remove_where(
            audit, (audit.c.tenant == escaped(tenant)) & (audit.c.number <= last), first=audit.c.number
        )


def _key(tenant: str, number: int) -> str:
    return f"{escaped(tenant)}:{number}"


def _page(body: bytes) -> AuditPage:
    return page_from_json(orjson.loads(body))
