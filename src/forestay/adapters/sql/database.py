"""One database and its connections, shared by all stores in it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Executable,
    Inspector,
    Table,
    delete,
    insert,
    inspect,
    make_url,
    select,
    text,
    tuple_,
    update,
)

from forestay.adapters.sql.dialects import Dialect, Postgres, Sqlite
from forestay.adapters.sql.errors import translated
from forestay.adapters.sql.rows import Row
from forestay.adapters.sql.tables import ADDED, ADDED_INDEXES, LAYOUT, TAKEN, layout, metadata
from forestay.ports.errors import Permanent

ANSWER_SECONDS = 30.0
"""Seconds to wait for an answer; after that a read is `Transient` and the outcome of a write unknown."""


Value = TypeVar("Value")
REMOVED_AT_ONCE = 1000
"""Rows removed in one transaction."""


class SqlDatabase:
    """A PostgreSQL database (`postgresql://…`) or a SQLite file (`sqlite:///…`)."""

    def __init__(
        self, url: str, *, schema: str | None = None, connections: int = 8, timeout: float = ANSWER_SECONDS
    ) -> None:
        """`schema` is only for PostgreSQL and created where it is missing. SQLite has one additional connection for writes."""
        place = make_url(url)
        name = place.get_backend_name()
        self.dialect: Dialect
        if name == "postgresql":
            self.dialect = Postgres(place, schema, connections, timeout)
        elif name == "sqlite" and place.database not in (None, "", ":memory:") and schema is None:
            self.dialect = Sqlite(place, connections, timeout)
        else:
            raise Permanent("a SQL store is a PostgreSQL database or a SQLite file")
        self._going_on: set[asyncio.Task[Any]] = set()
        """Tasks that run to their end although their caller was cancelled."""

    async def open(self) -> None:
        """Create missing tables.

        A complete store is opened without the lock: otherwise many processes that start at once would wait for each other.
        """
        with translated(checking_setup=True):
            async with self.dialect.reader.connect() as connection:
                number = await connection.run_sync(_number_if_complete)
            if number != LAYOUT:
                number = await self._make_tables()
        if number is not None and number > TAKEN:
            raise Permanent(f"the tables have layout {number}; this release supports {LAYOUT}")

    async def _make_tables(self) -> int | None:
        """Create missing tables and columns; returns the earlier layout, if there was one."""
        async with self.dialect.changing() as connection:
            await self.dialect.begin_layout(connection)
            await connection.run_sync(metadata.create_all)
            number = (await connection.execute(select(layout.c.number))).scalar()
            if number is None:
                await connection.execute(insert(layout).values(number=LAYOUT))
            elif number <= TAKEN:
                await connection.run_sync(_grow)
                await connection.execute(update(layout).values(number=LAYOUT))
        return number

    async def close(self) -> None:
        if self._going_on:
            await asyncio.wait(self._going_on)
        await self.dialect.close()

    async def rows(self, statement: Executable) -> Sequence[Row]:
        """The rows that a statement returns."""

        async def find() -> Sequence[Row]:
            async with self.dialect.reader.connect() as connection:
                return (await connection.execute(statement)).all()

        with translated():
            return await self._unbroken(find())

    async def run(self, statement: Executable) -> None:
        """Execute a statement that changes something, durable when this returns."""

        async def change() -> None:
            async with self.dialect.changing() as connection:
                await connection.execute(statement)

        with translated():
            await self._unbroken(change())

    async def change(self, statement: Executable) -> int:
        """Execute a statement that changes rows, durable when this returns; returns how many."""

        async def change() -> int:
            async with self.dialect.changing() as connection:
                return (await connection.execute(statement)).rowcount

        with translated():
            return await self._unbroken(change())

    async def create(self, table: Table, rows: Sequence[Row]) -> set[str]:
        """Create the rows whose ids do not exist yet, and return those ids."""
        return await self.write(table, rows, ())

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        """Create rows, and write others over the versions before theirs; returns the successful ones."""
        return await self._unbroken(self.dialect.write(table, creates, rewrites))

    async def put(self, table: Table, row: Row) -> None:
        """Write a row over any that has its key."""
        statement = self.dialect.insert(table).values(row)
        values = {place.name: statement.excluded[place.name] for place in table.columns if not place.primary_key}
        await self.run(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=values))

    async def remove(self, table: Table, versions: Sequence[tuple[str, int]], beside: Column[Any] | None = None) -> int:
        """Remove the rows that are at these versions, and those of another table that refer to them; returns how many."""

        async def change() -> int:
            status = tuple_(table.c.id, table.c.version).in_(versions)
            async with self.dialect.changing() as connection:
                gone = (await connection.execute(delete(table).where(status).returning(table.c.id))).scalars().all()
                if gone and beside is not None:
                    await connection.execute(delete(beside.table).where(self.dialect.any_of(beside, gone)))
            return len(gone)

        with translated():
            return await self._unbroken(change())

    async def remove_where(self, table: Table, condition: ColumnElement[bool], first: Column[Any] | None = None) -> int:
        """Remove the rows that match, some at a time, so that concurrent writers need not wait for all of them; returns how many.

        `first`: those with the least values of this column first.
        """

        async def change() -> int:
            some = select(table.c.id).where(condition).limit(REMOVED_AT_ONCE)
            if first is not None:
                some = some.order_by(first)
            async with self.dialect.changing() as connection:
                gone = (await connection.execute(delete(table).where(table.c.id.in_(some)).returning(table.c.id))).all()
            return len(gone)

        removed = 0
        with translated():
            while count := await self._unbroken(change()):
                removed += count
        return removed

    async def _unbroken(self, work: Coroutine[Any, Any, Value]) -> Value:
        """Complete the work even if the caller is cancelled: a connection that is abandoned halfway is lost to the pool."""
        task = asyncio.ensure_future(work)
        self._going_on.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._going_on.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that no warning is logged when the caller was cancelled


def _number_if_complete(connection: Connection) -> int | None:
    """The layout of a store with every table, column and index; None if any is missing."""
    inspector = inspect(connection)
    if not metadata.tables.keys() <= set(inspector.get_table_names()):
        return None
    tables = {table.name for table in metadata.sorted_tables for index in table.indexes if index.name in ADDED_INDEXES}
    indexes = {index["name"] for name in tables for index in inspector.get_indexes(name)}
    if _missing_columns(inspector) or not indexes >= ADDED_INDEXES:
        return None
    number: int | None = connection.execute(select(layout.c.number)).scalar()
    return number


def _missing_columns(inspector: Inspector) -> list[Column[Any]]:
    """Columns that were added after their tables, and do not exist yet."""
    tables = {column.table.name for column in ADDED}
    there = {(name, column["name"]) for name in tables for column in inspector.get_columns(name)}
    return [column for column in ADDED if (column.table.name, column.name) not in there]


def _grow(connection: Connection) -> None:
    """Add what is newer than these tables, also by an earlier release; inside the transaction that holds the lock."""
    quote = connection.dialect.identifier_preparer.quote
    for column in _missing_columns(inspect(connection)):
        kind = column.type.compile(connection.dialect)
        connection.execute(text(f"ALTER TABLE {column.table.name} ADD COLUMN {quote(column.name)} {kind}"))
    for index in (other_index for table in metadata.sorted_tables for other_index in table.indexes):
        if index.name in ADDED_INDEXES:
            index.create(connection, checkfirst=True)
