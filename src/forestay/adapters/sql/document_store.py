"""The document store on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
from sqlalchemy import select

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import VENDOR_ERRORS, meaning
from forestay.adapters.sql.rows import TERM, Row, body_of, check_key, escaped, to_json, unescaped
from forestay.adapters.sql.tables import documents as table
from forestay.formats.text.readable import Readable
from forestay.ports.documents import Document, StoredDocument
from forestay.ports.errors import Unreadable
from forestay.ports.jobs.job_store import MAX_PAGE, Conflicted, Unknown, Version, WriteResult, Written

_log = structlog.get_logger(__name__)


class SqlDocumentStore:
    """Implements the port `DocumentStore`, in the database of the job store, which opens and closes it."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))

    async def put(self, documents: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        return await self._put(documents)

    async def _put(self, wanted: Sequence[tuple[Document, Version | None]]) -> Sequence[WriteResult]:
        creates: list[Row] = []
        rewrites: list[Row] = []
        for document, expected in wanted:
            check_key(document.id, document.id)
            body = to_json(document.body, f"document {document.id!r}")
            row = (escaped(document.id), _next(expected), escaped(document.tenant), escaped(document.kind), body)
            if expected is None:
                creates.append(row)
            elif expected.term == TERM:
                rewrites.append(row)
        if not creates and not rewrites:
            return [Conflicted("a version of another store") for _ in wanted]
        try:
            done = await self.database.write(table, creates, rewrites)
        except VENDOR_ERRORS as error:
            return [Unknown(str(meaning(error)))] * len(wanted)
        return [
            Written(Version(_next(expected), TERM))
            if escaped(document.id) in done and (expected is None or expected.term == TERM)
            else Conflicted("it is not at the expected version")
            for document, expected in wanted
        ]

    async def get(self, documents: Sequence[str]) -> Mapping[str, StoredDocument]:
        stored_documents = await self._read(documents)
        return {stored_document.document.id: stored_document for stored_document in stored_documents}

    async def _read(self, names: Sequence[str]) -> Sequence[StoredDocument]:
        wanted = self.database.dialect.any_of(table.c.id, [escaped(name) for name in names])
        rows = ((unescaped(row[0]), row) for row in await self.database.rows(select(table).where(wanted)))
        read, spoilt = self.readable.split(rows, _stored)
        if spoilt:
            raise Unreadable(spoilt, "documents")
        return read

    async def find(self, kind: str, *, tenant: str | None = None) -> Sequence[StoredDocument]:
        wanted = select(table).where(table.c.kind == escaped(kind)).order_by(table.c.id).limit(MAX_PAGE)
        if tenant is not None:
            wanted = wanted.where(table.c.tenant == escaped(tenant))
        rows = list(await self.database.rows(wanted))
        page = len(rows)
        while page == MAX_PAGE:
            page = len(more := await self.database.rows(wanted.where(table.c.id > rows[-1][0])))
            rows += more
        return self.readable.each(((unescaped(row[0]), row) for row in rows), _stored)

    async def remove(self, documents: Sequence[StoredDocument]) -> int:
        at = [
            (escaped(stored.document.id), stored.version.number) for stored in documents if stored.version.term == TERM
        ]
        return await self.database.remove(table, at) if at else 0

    async def kinds(self, prefix: str) -> Sequence[str]:
        # By a range, which is one of the index; the greatest character ends it.
        start = escaped(prefix)
        wanted = select(table.c.kind).where(table.c.kind >= start, table.c.kind < f"{start}\U0010ffff")
        rows = await self.database.rows(wanted.distinct().order_by(table.c.kind))
        return [unescaped(kind) for (kind,) in rows]


def _next(expected: Version | None) -> int:
    return 1 if expected is None else expected.number + 1


def _stored(row: Row) -> StoredDocument:
    name, version, tenant, kind, body = row
    return StoredDocument(
        Document(unescaped(name), unescaped(tenant), unescaped(kind), body_of(body)), Version(version, TERM)
    )
