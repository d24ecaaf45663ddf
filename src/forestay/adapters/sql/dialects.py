"""All differences between PostgreSQL and SQLite, in one place."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache, partial
from operator import itemgetter
from typing import Any, Protocol

import orjson
from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    ColumnElement,
    Connection,
    Table,
    Text,
    bindparam,
    cast,
    column,
    event,
    exists,
    func,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.schema import Column

from forestay.adapters.sql.connections import NEVER_EARLY, Connections
from forestay.adapters.sql.rows import Row
from forestay.adapters.sql.sqlite_writes import SqliteWrites
from forestay.adapters.sql.tables import jobs


class Dialect(Protocol):
    """The operations that the stores need of a database."""

    reader: AsyncEngine
    writer: AsyncEngine

    async def begin_layout(self, connection: AsyncConnection) -> None:
        """Keep other processes from creating the tables at the same time; inside the transaction that creates them."""
        ...

    def changing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction of the writer, durable when it is left."""
        ...

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        """Create the first where they do not exist, write the second over the version just below theirs; returns the successful ones.

        The table begins with `id`, and with `version` if rows are rewritten. The ids differ. Durable when it returns.
        """
        ...

    def insert(self, table: Table) -> Any:
        """The dialect's own insert, which supports a conflict clause for existing keys."""
        ...

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        """Whether a column has one of many values, by one parameter however many there are."""
        ...

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]: ...

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        """A number that is not negative as a text of 20 digits, which sorts as it does."""
        ...

    async def close(self) -> None: ...


def _engine(url: URL, size: int, timeout: float, arguments: Mapping[str, Any]) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=size,
        max_overflow=0,
        pool_timeout=timeout,
        hide_parameters=True,
        connect_args=arguments,
    )


class Postgres:
    """Single statements commit automatically: one round trip, durable when it is answered."""

    insert = staticmethod(postgresql.insert)

    def __init__(self, url: URL, schema: str | None, connections: int, timeout: float) -> None:
        settings = {"application_name": "forestay"}
        if schema is not None:
            settings["search_path"] = '"' + schema.replace('"', '""') + '"'
        self.schema = schema
        place = url.set(drivername="postgresql+asyncpg")
        arguments = {"timeout": timeout, "command_timeout": timeout, "server_settings": settings}
        self.writer = _engine(place, connections, timeout, arguments)
        self.reader = self.writer.execution_options(isolation_level="AUTOCOMMIT")
        event.listen(self.writer.sync_engine, "connect", _never_answer_early)
        named = {**self.writer.dialect.create_connect_args(place)[1]}
        for own in ("prepared_statement_cache_size", "prepared_statement_name_func"):
            named.pop(own, None)  # SQLAlchemy's, not the driver's
        self.direct = Connections({**named, **arguments}, most=max(1, connections // 2), timeout=timeout)

    async def begin_layout(self, connection: AsyncConnection) -> None:
        await connection.execute(select(func.pg_advisory_xact_lock(0x686F6C64)))
        if self.schema is not None:
            name = connection.dialect.identifier_preparer.quote_identifier(self.schema)
            await connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {name}"))

    def changing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        return self.writer.begin()

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        parts = [_statement(build, table, rows) for build, rows in ((_create, creates), (_rewrite, rewrites)) if rows]
        return {row[0] for row in await self.direct.fetch(*parts)}

    async def close(self) -> None:
        await self.direct.close()
        await self.writer.dispose()

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        return place == func.any(bindparam(None, list(values), type_=ARRAY(place.type, dimensions=1)))

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        return func.lpad(cast(number, Text), literal_column("20"), literal_column("'0'"))

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]:
        wanted = bindparam(None, orjson.dumps([label]).decode(), type_=Text())
        return labels.op("@>", is_comparison=True)(cast(wanted, JSONB))


def _never_answer_early(connection: Any, _: object) -> None:
    connection.run_async(lambda driver: driver.execute(NEVER_EARLY))


_Values = Mapping[Column[Any], ColumnElement[Any]]
"""The value of each column in a statement: a parameter, or a column of the rows that are sent as arrays."""
_Build = Callable[[Table, _Values], Any]

SCATTER_COLUMNS = frozenset({"id", "index", "rank", "slot", "document"})
"""The columns in which the jobs of one scatter differ."""
_in_common = itemgetter(*(at for at, place in enumerate(jobs.columns) if place.name not in SCATTER_COLUMNS))


def _statement(build: _Build, table: Table, rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """A statement for rows, as the driver takes it, and its parameters.

    Columns in which the rows differ are sent as arrays, the others once, since unpacking an array is slow in the server. The
    statement is the same for any number of rows.

    All writers lock rows in the order in which they are sent, that of their ids, so that no two wait for each
    other. If the planner chooses another order, a deadlock is an unknown outcome like any other.
    """
    statement, parameters = _compiled(build, table, _differing(table, rows))
    columns = list(zip(*sorted(rows, key=itemgetter(0)), strict=True))
    return statement, [sent(columns[at]) for at, sent in parameters]


def _differing(table: Table, rows: Sequence[Row]) -> frozenset[str]:
    """The differing columns: none for one row, a few for the jobs of one scatter, else all: every set is another statement to plan."""
    if len(rows) == 1:
        return frozenset()
    if table is jobs:
        first = _in_common(rows[0])
        if all(_in_common(row) == first for row in rows):
            return SCATTER_COLUMNS
    return frozenset(table.columns.keys())


def _numbers(values: tuple[Any, ...]) -> str:
    """Numbers as one text: the driver is slow with each number of a list."""
    return "{" + str(values)[1:-1].rstrip(",").replace("None", "NULL") + "}"


@cache
def _compiled(
    build: _Build, table: Table, arrays: frozenset[str]
) -> tuple[str, Sequence[tuple[int, Callable[[tuple[Any, ...]], Any]]]]:
    """A statement's text, and for each parameter the place of its column and how that column's values are sent."""
    values: dict[Column[Any], ColumnElement[Any]] = {}
    sent: dict[str, tuple[int, Callable[[tuple[Any, ...]], Any]]] = {}
    unpacked: list[tuple[ColumnElement[Any], Any]] = []
    for at, place in enumerate(table.columns):
        parameter = f"{place.name}s"
        kind = Text() if place.info.get("json") else place.type
        if place.name not in arrays:
            sent[parameter] = at, itemgetter(0)
            values[place] = bindparam(parameter, type_=kind)
            continue
        number = isinstance(kind, BigInteger | Boolean)
        sent[parameter] = at, _numbers if number else list
        array = ARRAY(kind, dimensions=1)
        value = cast(bindparam(parameter, type_=Text()), array) if number else bindparam(parameter, type_=array)
        unpacked.append((value, column(place.name, kind)))
    if unpacked:
        unnested = func.unnest(*(value for value, _ in unpacked)).table_valued(*(name for _, name in unpacked))
        rows = unnested.render_derived(name="sent")
        values.update((place, rows.c[place.name]) for place in table.columns if place.name in arrays)
    ordered = {
        place: cast(values[place], JSONB) if place.info.get("json") else values[place] for place in table.columns
    }
    compiled = build(table, ordered).compile(dialect=PGDialect_asyncpg())  # type: ignore[no-untyped-call]
    return str(compiled), tuple(sent[name] for name in compiled.positiontup)


def _create(table: Table, values: _Values) -> Any:
    rows = select(*values.values())
    return postgresql.insert(table).from_select(list(values), rows).on_conflict_do_nothing().returning(table.c.id)


def _rewrite(table: Table, values: _Values) -> Any:
    before = values[table.c.version] - literal_column("1")
    status = (table.c.id == values[table.c.id]) & (table.c.version == before)
    changed = {place: value for place, value in values.items() if not place.primary_key}
    return update(table).values(changed).where(status).returning(table.c.id)


class Sqlite:
    """Two connections write in turns, and several read concurrently (write-ahead log); a commit is on disk when it is answered."""

    insert = staticmethod(sqlite.insert)

    def __init__(self, url: URL, connections: int, timeout: float) -> None:
        place = url.set(drivername="sqlite+aiosqlite")
        # The driver must not begin transactions itself: it would begin them without the lock.
        arguments = {"timeout": timeout, "isolation_level": None}
        self.writer, self.reader = (_engine(place, size, timeout, arguments) for size in (1, connections))
        for engine in (self.writer, self.reader):
            event.listen(engine.sync_engine, "do_connect", partial(_make_private, url.database or ""))
            event.listen(engine.sync_engine, "connect", partial(_prepare_sqlite, patience=timeout))
            event.listen(engine.sync_engine, "handle_error", _drop_unreadable)
        event.listen(self.writer.sync_engine, "begin", _begin_immediate)
        self._turn = asyncio.Lock()
        self._writes = SqliteWrites(partial(connected, url.database or "", timeout), self._turn)

    async def begin_layout(self, connection: AsyncConnection) -> None:
        """The transaction has the lock already."""

    async def close(self) -> None:
        await self._writes.close()
        await self.reader.dispose()
        await self.writer.dispose()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._turn, self.writer.begin() as connection:
            yield connection

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        return await self._writes.write(table, creates, rewrites)

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        if len(values) == 1:  # the most frequent case; building the other form takes longer than running it
            return place == bindparam(None, values[0], type_=place.type)
        return _listed(place, orjson.dumps(list(values)).decode())

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        return func.printf(literal_column("'%020d'"), number, type_=Text())

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]:
        each = func.json_each(labels).table_valued("value", name="each_label")
        return exists(select(1).select_from(each).where(each.c.value == bindparam(None, label, type_=Text())))


def _make_private(path: str, *_: object) -> None:
    """Make a new file readable by its owner only; SQLite gives its log the same mode: it has parameters and logs of all tenants."""
    with suppress(OSError):  # SQLite itself reports what is wrong with the path
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


PRAGMAS = ("synchronous = FULL", "temp_store = MEMORY", "mmap_size = 268435456")


def _prepare_sqlite(connection: Any, _: object, *, patience: float) -> None:
    _prepare(connection.cursor(), patience, lambda: connection.run_async(lambda _: asyncio.sleep(0.01)))


def _prepare(cursor: Any, patience: float, pause: Callable[[], object]) -> None:
    deadline = time.monotonic() + patience
    while not _has_write_ahead_log(cursor, deadline):
        pause()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def connected(path: str, patience: float) -> sqlite3.Connection:
    """A connection that is used from one thread at a time, without SQLAlchemy."""
    _make_private(path)
    connection = sqlite3.connect(path, timeout=patience, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection.cursor(), patience, lambda: time.sleep(0.01))
    except BaseException:
        connection.close()
        raise
    return connection


def _has_write_ahead_log(cursor: Any, deadline: float) -> bool:
    """Whether the log exists. When several processes begin the log of a new file at once, SQLite refuses all but one without waiting."""
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
            raise
        return False
    return True


_UNREADABLE = frozenset({sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})


def _drop_unreadable(context: ExceptionContext) -> None:
    """Drop a connection that could not read its file: it would keep failing after the file was repaired."""
    code = getattr(context.original_exception, "sqlite_errorcode", None)
    if isinstance(code, int) and code & 0xFF in _UNREADABLE and context.connection is not None:
        context.is_disconnect = True


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _listed(place: ColumnElement[Any], values: str) -> ColumnElement[bool]:
    return place.in_(select(func.json_each(bindparam(None, values, type_=Text())).table_valued("value").c.value))
