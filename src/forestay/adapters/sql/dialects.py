"""Everything that PostgreSQL and SQLite do differently, in one place."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
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
    Executable,
    Table,
    Text,
    bindparam,
    cast,
    column,
    event,
    exists,
    func,
    insert,
    literal_column,
    null,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.sql.schema import Column

from forestay.adapters.sql.connections import NEVER_EARLY, Connections
from forestay.adapters.sql.rows import Row


class Dialect(Protocol):
    """What the stores need of a database."""

    reader: AsyncEngine
    writer: AsyncEngine

    async def begin_layout(self, connection: AsyncConnection) -> None:
        """Keep others from making the tables at the same time; inside the transaction that makes them."""
        ...

    async def create(self, table: Table, rows: Sequence[Row]) -> set[str]:
        """Add the rows whose id is not there yet, durably; which ones were added."""
        ...

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        """Add the first where there is none, put the second over the version just below theirs; which ones were.

        The table begins with `id` and `version`. The ids differ. Durable when it returns.
        """
        ...

    def upsert(self, table: Table, row: Row) -> Executable:
        """Put a row over whatever has its key."""
        ...

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        """Whether a column has one of many values, by one parameter however many there are."""
        ...

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]: ...

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        """A number that is not negative as a text of 20 digits, which sorts as it does."""
        ...

    async def close(self) -> None: ...


class Postgres:
    """Statements commit by themselves where one is enough: one round trip, durable when it is answered."""

    def __init__(self, url: URL, schema: str | None, connections: int, timeout: float) -> None:
        settings = {"application_name": "forestay"}
        if schema is not None:
            settings["search_path"] = '"' + schema.replace('"', '""') + '"'
        self.schema = schema
        place = url.set(drivername="postgresql+asyncpg")
        arguments = {"timeout": timeout, "command_timeout": timeout, "server_settings": settings}
        self.writer = create_async_engine(
            place,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=timeout,
            hide_parameters=True,
            connect_args=arguments,
        )
        named = {**self.writer.dialect.create_connect_args(place)[1]}
        for own in ("prepared_statement_cache_size", "prepared_statement_name_func"):
            named.pop(own, None)  # SQLAlchemy's, not the driver's
        self.direct = Connections({**named, **arguments}, most=max(1, connections // 2), timeout=timeout)
        self.reader = self.writer.execution_options(isolation_level="AUTOCOMMIT")
        event.listen(self.writer.sync_engine, "connect", _never_answer_early)

    async def begin_layout(self, connection: AsyncConnection) -> None:
        await connection.execute(select(func.pg_advisory_xact_lock(0x686F6C64)))
        if self.schema is not None:
            name = connection.dialect.identifier_preparer.quote_identifier(self.schema)
            await connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {name}"))

    async def create(self, table: Table, rows: Sequence[Row]) -> set[str]:
        if len(rows) == 1:
            return await self._run_alone(table, _create_one, rows)
        return await self._run_alone(table, _create_alike if _alike(table, rows) else _create_many, rows)

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        if not rewrites:
            return await self.create(table, creates)
        if not creates:
            return await self._run_alone(table, _rewrite_one if len(rewrites) == 1 else _rewrite_many, rewrites)
        async with self.writer.begin() as connection:
            done = await _run(connection, table, _create_many(table), creates)
            done |= await _run(connection, table, _rewrite_many(table), rewrites)
        return done

    async def _run_alone(self, table: Table, wanted: Callable[[Table], Executable], rows: Sequence[Row]) -> set[str]:
        words, names = _spelt(wanted(table))
        values: Mapping[str, Any] = _values(table, rows[0]) if len(rows) == 1 else _arrays(table, rows)
        if wanted is _create_alike:
            values = {**_values(table, rows[0]), **_arrays(table, rows, only=TELLING)}
        return {row[0] for row in await self.direct.fetch(words, [values[name] for name in names])}

    async def close(self) -> None:
        await self.direct.close()
        await self.writer.dispose()

    def upsert(self, table: Table, row: Row) -> Executable:
        statement = postgresql.insert(table).values(row)
        values = {
            other_column.name: statement.excluded[other_column.name]
            for other_column in table.columns
            if not other_column.primary_key
        }
        return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        return place == func.any(bindparam(None, list(values), type_=ARRAY(place.type, dimensions=1)))

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        return func.lpad(cast(number, Text), literal_column("20"), literal_column("'0'"))

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]:
        wanted = bindparam(None, orjson.dumps([label]).decode(), type_=Text())
        return labels.op("@>", is_comparison=True)(cast(wanted, JSONB))


def _never_answer_early(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute(NEVER_EARLY)
    cursor.close()
    connection.commit()


async def _run(connection: AsyncConnection, table: Table, statement: Executable, rows: Sequence[Row]) -> set[str]:
    return set((await connection.execute(statement, _arrays(table, rows))).scalars())


def _arrays(table: Table, rows: Sequence[Row], only: frozenset[str] | None = None) -> dict[str, list[Any] | str]:
    """The values by column.

    Everyone takes the locks of rows in the order in which they are sent, that of their ids, so that no two wait for each
    other. If the planner should choose another order, a deadlock is an unknown outcome like any other.
    """
    columns = zip(*sorted(rows, key=_id), strict=True)
    return {
        f"{place.name}s": _array(place, values)
        for place, values in zip(table.columns, columns, strict=True)
        if only is None or place.name in only
    }


@cache
def _spelt(statement: Any) -> tuple[str, Sequence[str]]:
    """A statement as the driver takes it, and its parameters in order."""
    compiled = statement.compile(dialect=PGDialect_asyncpg())  # type: ignore[no-untyped-call]
    return str(compiled), tuple(compiled.positiontup)


def _values(table: Table, row: Row) -> dict[str, Any]:
    return {f"{place.name}s": value for place, value in zip(table.columns, row, strict=True)}


def _array(place: Column[Any], values: tuple[Any, ...]) -> list[Any] | str:
    """The values of one column. Numbers are sent as one text: the driver looks at each number of a list for long."""
    if isinstance(place.type, BigInteger | Boolean):
        return "{" + str(values)[1:-1].rstrip(",").replace("None", "NULL") + "}"
    return list(values)


def _id(row: Row) -> str:
    name: str = row[0]
    return name


def _plain(place: Column[Any]) -> Any:
    return Text() if place.info.get("json") else place.type


def _sent(table: Table) -> Any:
    """The rows of a call as a table: one array a column, so the statement is the same for any number of rows."""
    names = (column(place.name, _plain(place)) for place in table.columns)
    return func.unnest(*map(_sent_array, table.columns)).table_valued(*names).render_derived(name="sent")


def _sent_array(place: Column[Any]) -> ColumnElement[Any]:
    array = ARRAY(_plain(place), dimensions=1)
    if isinstance(place.type, BigInteger | Boolean):
        return cast(bindparam(f"{place.name}s", type_=Text()), array)
    return bindparam(f"{place.name}s", type_=array)


def _value(sent: Any, place: Column[Any]) -> ColumnElement[Any]:
    value: ColumnElement[Any] = sent.c[place.name]
    return cast(value, JSONB) if place.info.get("json") else value


@cache
def _create_many(table: Table) -> Executable:
    sent = _sent(table)
    rows = select(*(_value(sent, place) for place in table.columns))
    return (
        postgresql.insert(table).from_select(list(table.columns), rows).on_conflict_do_nothing().returning(table.c.id)
    )


@cache
def _rewrite_many(table: Table) -> Executable:
    sent = _sent(table)
    status = (table.c.id == sent.c.id) & (table.c.version == sent.c.version - literal_column("1"))
    values = {place: _value(sent, place) for place in table.columns if not place.primary_key}
    return update(table).values(values).where(status).returning(table.c.id)


def _one_value(place: Column[Any]) -> ColumnElement[Any]:
    value: ColumnElement[Any] = bindparam(f"{place.name}s", type_=_plain(place))
    return cast(value, JSONB) if place.info.get("json") else value


@cache
def _create_one(table: Table) -> Executable:
    """A single row goes without arrays, which take the server longer to unpack than to store."""
    values = {place: _one_value(place) for place in table.columns}
    return postgresql.insert(table).values(values).on_conflict_do_nothing().returning(table.c.id)


TELLING = frozenset({"id", "index", "rank", "slot", "document"})
"""The columns in which the jobs of one scatter differ."""


def _alike(table: Table, rows: Sequence[Row]) -> bool:
    """Whether the rows are jobs that differ only as those of one scatter do."""
    if not TELLING.issubset(table.columns.keys()):
        return False
    places = _common_places(table)
    first = places(rows[0])
    return all(places(row) == first for row in rows)


@cache
def _common_places(table: Table) -> Callable[[Row], tuple[Any, ...]]:
    return itemgetter(*(place for place, column in enumerate(table.columns) if column.name not in TELLING))


@cache
def _create_alike(table: Table) -> Executable:
    """What is the same for all rows is sent once: the server unpacks five arrays instead of all."""
    differing = [place for place in table.columns if place.name in TELLING]
    names = (column(place.name, _plain(place)) for place in differing)
    sent = func.unnest(*map(_sent_array, differing)).table_valued(*names).render_derived(name="sent")
    values = [_value(sent, place) if place.name in TELLING else _one_value(place) for place in table.columns]
    rows = select(*values).select_from(sent)
    return (
        postgresql.insert(table).from_select(list(table.columns), rows).on_conflict_do_nothing().returning(table.c.id)
    )


@cache
def _rewrite_one(table: Table) -> Executable:
    values = {place: _one_value(place) for place in table.columns if not place.primary_key}
    before = bindparam("versions", type_=table.c.version.type) - literal_column("1")
    status = (table.c.id == bindparam("ids", type_=table.c.id.type)) & (table.c.version == before)
    return update(table).values(values).where(status).returning(table.c.id)


class Sqlite:
    """One connection writes, and several read beside it (write-ahead log); a commit is on disk when it is answered."""

    def __init__(self, url: URL, connections: int, timeout: float) -> None:
        place = url.set(drivername="sqlite+aiosqlite")
        # The driver must not begin transactions by itself: it would begin them without the lock.
        arguments = {"timeout": timeout, "isolation_level": None}
        self.writer, self.reader = (
            create_async_engine(
                place,
                pool_size=size,
                max_overflow=0,
                pool_timeout=timeout,
                hide_parameters=True,
                connect_args=arguments,
            )
            for size in (1, connections)
        )
        for engine in (self.writer, self.reader):
            event.listen(engine.sync_engine, "connect", partial(_prepare_sqlite, patience=timeout))
        event.listen(self.writer.sync_engine, "begin", _begin_immediate)

    async def begin_layout(self, connection: AsyncConnection) -> None:
        """The transaction has the lock already."""

    async def close(self) -> None:
        await self.reader.dispose()
        await self.writer.dispose()

    async def create(self, table: Table, rows: Sequence[Row]) -> set[str]:
        return await self.write(table, rows, ())

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        async with self.writer.begin() as connection:
            # Nobody else writes inside this transaction, so what is read here holds until it ends.
            wanted = orjson.dumps([row[0] for row in (*creates, *rewrites)]).decode()
            rows: Sequence[Any] = (await connection.exec_driver_sql(_sqlite_versions(table), (wanted,))).all()
            versions = {name: version for name, version in rows}  # noqa: C416 - rows, not pairs
            new = [row for row in creates if row[0] not in versions]
            fitting = [row for row in rewrites if versions.get(row[0]) == row[1] - 1]
            if new:
                await connection.exec_driver_sql(_sqlite_insert(table), new)
            if fitting:
                await connection.exec_driver_sql(_sqlite_update(table), [(*row[1:], row[0]) for row in fitting])
        return {row[0] for row in (*new, *fitting)}

    def upsert(self, table: Table, row: Row) -> Executable:
        statement = sqlite.insert(table).values(row)
        values = {
            other_column.name: statement.excluded[other_column.name]
            for other_column in table.columns
            if not other_column.primary_key
        }
        return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values)

    def any_of(self, place: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        if len(values) == 1:  # as most are; to put the other form together takes longer than to run it
            return place == bindparam(None, values[0], type_=place.type)
        return _listed(place, orjson.dumps(list(values)).decode())

    def padded(self, number: ColumnElement[int]) -> ColumnElement[str]:
        return func.printf(literal_column("'%020d'"), number, type_=Text())

    def labelled(self, labels: ColumnElement[Any], label: str) -> ColumnElement[bool]:
        each = func.json_each(labels).table_valued("value", name="each_label")
        return exists(select(1).select_from(each).where(each.c.value == bindparam(None, label, type_=Text())))


def _prepare_sqlite(connection: Any, _: object, *, patience: float) -> None:
    cursor = connection.cursor()
    deadline = time.monotonic() + patience
    while not _has_write_ahead_log(cursor, deadline):
        connection.run_async(lambda _: asyncio.sleep(0.01))
    for pragma in ("synchronous = FULL", "temp_store = MEMORY", "mmap_size = 268435456"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _has_write_ahead_log(cursor: Any, deadline: float) -> bool:
    """SQLite does not wait for a lock when several begin the log of a new file at once: it refuses all but one."""
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
            raise
        return False
    return True


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _listed(place: ColumnElement[Any], values: str) -> ColumnElement[bool]:
    return place.in_(select(func.json_each(bindparam(None, values, type_=Text())).table_valued("value").c.value))


@cache
def _sqlite_versions(table: Table) -> str:
    """The ids that are there of a list, and their versions where the table has such."""
    shown = select(table.c.id, table.c.get("version", null())).where(_listed(table.c.id, ""))
    return str(shown.compile(dialect=sqlite.dialect()))


@cache
def _sqlite_insert(table: Table) -> str:
    return str(insert(table).compile(dialect=sqlite.dialect()))


@cache
def _sqlite_update(table: Table) -> str:
    values = {place: bindparam(None, type_=place.type) for place in table.columns if place.name != "id"}
    statement = update(table).values(values).where(table.c.id == bindparam("key", type_=table.c.id.type))
    return str(statement.compile(dialect=sqlite.dialect()))
