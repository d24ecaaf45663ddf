"""The job store on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import orjson
import structlog
from sqlalchemy import ColumnElement, Executable, delete, func, literal, select, tuple_, update

from forestay.adapters.sql.database import ANSWER_SECONDS, SqlDatabase
from forestay.adapters.sql.errors import VENDOR_ERRORS, meaning, translated
from forestay.adapters.sql.rows import (
    TERM,
    Row,
    body_of,
    check_key,
    escaped,
    job_row,
    new_rows,
    stored_job,
    to_json,
    unescaped,
)
from forestay.adapters.sql.search import counts, in_steps, page, shown, tallies, write_cursor
from forestay.adapters.sql.tables import jobs, records, specifications
from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_json import specification_from_json, specification_to_json
from forestay.formats.text.readable import Readable
from forestay.ports.errors import Unreadable
from forestay.ports.jobs.job_store import (
    MAX_PAGE,
    USE_NOTED,
    Conflicted,
    DocumentChange,
    JobPage,
    JobQuery,
    Record,
    SpecificationUse,
    Stored,
    Unknown,
    Version,
    WriteResult,
    Written,
)

_log = structlog.get_logger(__name__)
NOTED_AT_ONCE = 500
"""Specifications whose use is noted by one statement: each has parameters of its own, and their number is limited."""
_NOT_THERE = Conflicted("it is not at the expected version")


class SqlJobStore:
    """Implements the port `JobStore`."""

    def __init__(
        self, url: str, *, schema: str | None = None, connections: int = 8, timeout: float = ANSWER_SECONDS
    ) -> None:
        self.database = SqlDatabase(url, schema=schema, connections=connections, timeout=timeout)
        self.readable = Readable(lambda job, why: _log.error("a job's document cannot be read", job=job, why=why))

    async def open(self) -> None:
        await self.database.open()

    async def close(self) -> None:
        await self.database.close()

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        creates = new_rows(document for document, expected in changes if expected is None)
        rewrites: list[Row] = []
        for document, expected in changes:
            if expected is None:
                continue
            if expected.term == TERM:
                rewrites.append(job_row(document, expected.number + 1))
        if not creates and not rewrites:
            return [_NOT_THERE for _ in changes]
        try:
            done = await self.database.write(jobs, creates, rewrites)
        except VENDOR_ERRORS as error:
            return [Unknown(str(meaning(error)))] * len(changes)
        return [_result(change, done) for change in changes]

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]:
        found_rows = await self.database.rows(self._jobs_by_id(jobs))
        rows = ((unescaped(job), (version, document)) for job, version, document in found_rows)
        read, spoilt = self.readable.split(rows, lambda row: stored_job(*row))
        if spoilt:
            raise Unreadable(spoilt, "job documents")
        return {stored.document.id: stored for stored in read}

    async def search(
        self, query: JobQuery, *, sort: str = "created", limit: int = 100, cursor: str | None = None
    ) -> JobPage:
        found_rows = await self.database.rows(page(self.database.dialect, query, sort=sort, limit=limit, cursor=cursor))
        more = None
        if len(found_rows) > limit:
            _, _, value, job = found_rows[limit - 1]
            more = write_cursor(sort, value, job)
        rows = ((unescaped(job), (version, document)) for version, document, _, job in found_rows[:limit])
        return JobPage(self.readable.each(rows, lambda row: stored_job(*row)), more)

    async def count(self, query: JobQuery, *, by: str) -> Mapping[str, int]:
        rows = await self.database.rows(counts(self.database.dialect, query, by=by))
        return {shown(value): many for value, many in rows}

    async def tally(self, query: JobQuery, *, over: str, step: int, by: str) -> Sequence[Mapping[str, int]]:
        wanted, steps = tallies(self.database.dialect, query, over=over, step=step, by=by)
        return in_steps(await self.database.rows(wanted), steps)

    async def remove(self, jobs: Sequence[Stored]) -> int:
        at = [(escaped(job.document.id), job.version.number) for job in jobs if job.version.term == TERM]
        return await self._remove_at(at) if at else 0

    async def put_specifications(self, specifications: Sequence[Specification], *, used: int = 0) -> None:
        await self._create_specifications(
            {specification.id: specification for specification in specifications}.values(), used
        )

    async def get_specifications(self, ids: Sequence[str]) -> Mapping[str, Specification]:
        wanted = self.database.dialect.any_of(specifications.c.id, [escaped(identifier) for identifier in ids])
        rows = await self.database.rows(select(specifications.c.document).where(wanted))
        read = (specification_from_json(orjson.loads(document)) for (document,) in rows)
        return {specification.id: specification for specification in read}

    async def unused_specifications(self, before: int, *, limit: int = 500) -> Sequence[SpecificationUse]:
        # Rows without a note are found by a search of their own: a database finds either in the index, and not both at once.
        return await self._unused(None, limit) or await self._unused(before, limit)

    async def _unused(self, before: int | None, limit: int) -> Sequence[SpecificationUse]:
        place = specifications.c.used
        old = place.is_(None) if before is None else place < before
        wanted = select(specifications.c.id, place).where(old).order_by(place, specifications.c.id).limit(limit)
        rows = await self.database.rows(wanted)
        return [SpecificationUse(unescaped(name), used or 0, Version(used or 0, TERM)) for name, used in rows]

    async def note_use(self, uses: Sequence[SpecificationUse], used: int) -> int:
        return await self.database.change(update(specifications).values(used=used).where(self._still(uses)))

    async def remove_specifications(self, uses: Sequence[SpecificationUse]) -> int:
        return await self.database.change(delete(specifications).where(self._still(uses)))

    def _still(self, uses: Sequence[SpecificationUse]) -> ColumnElement[bool]:
        """Those whose note is as it was read."""
        at = [(escaped(use.id), use.version.number) for use in uses if use.version.term == TERM]
        return tuple_(specifications.c.id, func.coalesce(specifications.c.used, 0)).in_(at)

    async def add_records(self, records: Sequence[Record]) -> Sequence[bool]:
        first: dict[str, int] = {}
        for place, record in enumerate(records):
            first.setdefault(record.id, place)
        added = await self._create_records([records[place] for place in first.values()])
        return [first[record.id] == place and escaped(record.id) in added for place, record in enumerate(records)]

    async def get_record(self, record: str) -> Record | None:
        rows = await self.database.rows(select(records).where(records.c.id == escaped(record)))
        return _record(rows[0]) if rows else None

    async def find_records(
        self,
        *,
        kind: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        since: int | None = None,
        after: tuple[int, str] | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> Sequence[Record]:
        wanted = select(records).limit(min(limit, MAX_PAGE))
        for place, value in ((records.c.kind, kind), (records.c.job, job), (records.c.tenant, tenant)):
            if value is not None:
                wanted = wanted.where(place == escaped(value))
        if since is not None:
            wanted = wanted.where(records.c.at >= since)
        if after is not None:
            last = literal(after[0], records.c.at.type), literal(escaped(after[1]), records.c.id.type)
            wanted = wanted.where(tuple_(records.c.at, records.c.id) > tuple_(*last))
        wanted = wanted.order_by(records.c.at.desc() if newest_first else records.c.at, records.c.id)
        rows = await self.database.rows(wanted)
        return self.readable.each(((unescaped(row[0]), row) for row in rows), _record)

    async def refresh(self, *, only_jobs: bool = False) -> None:
        """Nothing to do: what is acknowledged can be seen."""

    def _jobs_by_id(self, ids: Sequence[str]) -> Executable:
        wanted = self.database.dialect.any_of(jobs.c.id, [escaped(identifier) for identifier in ids])
        return select(jobs.c.id, jobs.c.version, jobs.c.document).where(wanted)

    async def drop_records(
        self, before: int, *, kinds: Sequence[str] = (), jobs: Sequence[str] = (), ids: Sequence[str] = ()
    ) -> int:
        named = self.database.dialect.any_of(records.c.id, [escaped(name) for name in ids])
        of = self.database.dialect.any_of(records.c.kind, [escaped(kind) for kind in kinds])
        beside = self.database.dialect.any_of(records.c.job, [escaped(job) for job in jobs])
        return await self.database.remove_where(records, (of | beside | named) & (records.c.at < before))

    async def _remove_at(self, versions: Sequence[tuple[str, int]]) -> int:
        return await self.database.remove(jobs, versions, records.c.job)

    async def _create_specifications(self, wanted: Iterable[Specification], used: int) -> None:
        rows = [
            (
                escaped(specification.id),
                to_json(specification_to_json(specification), f"specification {specification.id!r}"),
                used,
            )
            for specification in wanted
        ]
        if not rows:
            return
        with translated():
            there = {row[0] for row in rows} - await self.database.create(specifications, rows)
        if there and used:
            # One statement that creates the row if it was removed since: a note that found nothing would be lost.
            again = [row for row in rows if row[0] in there]
            for start in range(0, len(again), NOTED_AT_ONCE):
                await self.database.run(self._noting(again[start : start + NOTED_AT_ONCE], used))

    def _noting(self, rows: Sequence[Row], used: int) -> Executable:
        """Rows are sorted by id, as in every other write, so that no two writers wait for each other."""
        statement = self.database.dialect.insert(specifications).values(sorted(rows, key=itemgetter(0)))
        early = func.coalesce(specifications.c.used, 0) < used - USE_NOTED
        changed: Executable = statement.on_conflict_do_update(
            index_elements=[specifications.c.id], set_={"used": used}, where=early
        )
        return changed

    async def _create_records(self, wanted: Sequence[Record]) -> set[str]:
        rows: list[Row] = []
        for record in wanted:
            for key in (record.id, record.kind, record.job):
                check_key(key, record.id)
            body = to_json(record.body, f"record {record.id!r}")
            rows.append(
                (escaped(record.id), escaped(record.tenant), escaped(record.kind), escaped(record.job), record.at, body)
            )
        if not rows:
            return set()
        with translated():
            return await self.database.create(records, rows)


def _result(change: DocumentChange, done: set[str]) -> WriteResult:
    document, expected = change
    if escaped(document.id) not in done or (expected is not None and expected.term != TERM):
        return _NOT_THERE
    return Written(Version(1 if expected is None else expected.number + 1, TERM))


def _record(row: Row) -> Record:
    name, tenant, kind, job, at, body = row
    return Record(unescaped(name), unescaped(tenant), unescaped(kind), unescaped(job), at, body_of(body))
