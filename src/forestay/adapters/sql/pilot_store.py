"""Pilots and heartbeat pages on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import structlog
from sqlalchemy import delete, select

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import VENDOR_ERRORS, meaning
from forestay.adapters.sql.rows import TERM, check_key, escaped, to_json, unescaped
from forestay.adapters.sql.tables import heartbeat_pages, pilots
from forestay.domain.pilots.pilot import HeartbeatPage, Pilot, PilotState
from forestay.formats.jobs.pilot_json import (
    heartbeat_page_from_json,
    heartbeat_page_to_json,
    pilot_from_json,
    pilot_to_json,
)
from forestay.formats.text.readable import Readable
from forestay.ports.jobs.job_store import MAX_PAGE, Conflicted, Unknown, Version, WriteResult, Written
from forestay.ports.pilots.pilot_store import StoredPilot

_log = structlog.get_logger(__name__)


class SqlPilotStore:
    """Implements the port `PilotStore`, in the database of the job store, which opens and closes it."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))

    async def put_pilot(self, pilot: Pilot, expected: Version | None) -> WriteResult:
        if expected is not None and expected.term != TERM:
            return Conflicted("a version of another store")
        version = 1 if expected is None else expected.number + 1
        check_key(pilot.id, pilot.id)
        body = to_json(pilot_to_json(pilot), f"pilot {pilot.id!r}")
        row = (escaped(pilot.id), version, escaped(pilot.tenant), pilot.state.value, pilot.registered, body)
        creates, rewrites = ((row,), ()) if expected is None else ((), (row,))
        try:
            done = await self.database.write(pilots, creates, rewrites)
        except VENDOR_ERRORS as error:
            return Unknown(str(meaning(error)))
        return Written(Version(version, TERM)) if done else Conflicted("it is not at the expected version")

    async def get_pilot(self, pilot: str) -> StoredPilot | None:
        wanted = select(pilots.c.version, pilots.c.document).where(pilots.c.id == escaped(pilot))
        for version, document in await self.database.rows(wanted):
            return StoredPilot(pilot_from_json(orjson.loads(document)), Version(version, TERM))
        return None

    async def find_pilots(
        self, *, tenant: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Sequence[Pilot]:
        order = pilots.c.registered.desc(), pilots.c.id
        wanted = select(pilots.c.id, pilots.c.document, pilots.c.registered).order_by(*order).limit(limit or MAX_PAGE)
        if tenant is not None:
            wanted = wanted.where(pilots.c.tenant == escaped(tenant))
        if state is not None:
            wanted = wanted.where(pilots.c.state == escaped(state))
        found = list(await self.database.rows(wanted))
        page = len(found)
        while limit is None and page == MAX_PAGE:
            name, _, registered = found[-1]
            same = (pilots.c.registered == registered) & (pilots.c.id > name)
            page = len(more := await self.database.rows(wanted.where(same | (pilots.c.registered < registered))))
            found += more
        rows = ((unescaped(name), document) for name, document, _ in found)
        return self.readable.each(rows, lambda document: pilot_from_json(orjson.loads(document)))

    async def drop_gone(self, before: int) -> int:
        gone = pilots.c.state == escaped(PilotState.GONE.value)
        return await self.database.remove_where(pilots, gone & (pilots.c.registered < before))

    async def put_heartbeat_page(self, heartbeat_page: HeartbeatPage) -> None:
        check_key(heartbeat_page.server, heartbeat_page.server)
        row = (
            escaped(heartbeat_page.server),
            heartbeat_page.bucket,
            to_json(heartbeat_page_to_json(heartbeat_page), f"the heartbeat page of {heartbeat_page.server!r}"),
        )
        await self.database.put(heartbeat_pages, row)

    async def heartbeat_pages(self, *, fresh: bool = False, but_of: str = "") -> Sequence[HeartbeatPage]:
        asked = select(heartbeat_pages.c.document).order_by(heartbeat_pages.c.server, heartbeat_pages.c.bucket)
        if but_of:
            asked = asked.where(heartbeat_pages.c.server != escaped(but_of))
        rows = await self.database.rows(asked)
        return [heartbeat_page_from_json(orjson.loads(document)) for (document,) in rows]

    async def drop_heartbeat_pages(self, server: str) -> None:
        await self.database.run(delete(heartbeat_pages).where(heartbeat_pages.c.server == escaped(server)))
