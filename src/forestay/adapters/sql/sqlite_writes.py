"""Writes to a SQLite file, many in one commit.

Every commit costs a sync of the disk and two thread switches, whatever its size; and through SQLAlchemy and the driver's own thread
a write of one row took ten times as long as in SQLite itself. So writes go to SQLite directly, on one thread, and writes requested
during a commit share the next one. No write waits for further ones, and none fails because of another's error.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import orjson
from sqlalchemy import Table, Text, bindparam, func, insert, null, select, update
from sqlalchemy.dialects import sqlite

from forestay.adapters.sql.rows import Row

MOST_TOGETHER = 2_000
"""Rows in one commit: a small write must not wait for a hundred thousand rows of others."""
_CONNECTION_IS_GOOD = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT}
)
"""Errors after which the connection is used again; after any other the next write gets a new one."""
_FOR_ALL = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_READONLY,
    }
)
"""Errors of the file, which would affect any other write too, each after its own wait for a lock."""


@dataclass(slots=True, eq=False)
class _Write:
    table: Table
    creates: Sequence[Row]
    rewrites: Sequence[Row]
    answer: asyncio.Future[set[str]]

    @property
    def rows(self) -> int:
        return len(self.creates) + len(self.rewrites)


_Outcome = set[str] | Exception


class SqliteWrites:
    """The writes of this process to one file."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], turn: asyncio.Lock) -> None:
        """`turn` is held while a transaction is open, also by other writers: SQLite does not queue waiting writers."""
        self._connect = connect
        self._turn = turn
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[_Write] = []
        self._work: asyncio.Task[None] | None = None

    async def write(self, table: Table, creates: Sequence[Row], rewrites: Sequence[Row]) -> set[str]:
        """Write rows and return the successful ones; durable when this returns."""
        write = _Write(table, creates, rewrites, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._commit_all())
        return await write.answer

    async def close(self) -> None:
        """Close the connection; nothing may be being written. A later write opens it again."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)

    async def _commit_all(self) -> None:
        """Commit all waiting writes, and those that arrive meanwhile."""
        while self._waiting:
            batch: list[_Write] = []
            try:
                async with self._turn:
                    batch = self._next_batch()
                    if self._thread is None:
                        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-writes")
                    outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
            except BaseException:  # the loop ends: no caller may be left waiting for a result
                for write in (*batch, *self._waiting):
                    write.answer.cancel()
                self._waiting = []
                raise
            for write, outcome in zip(batch, outcomes, strict=True):
                if write.answer.done():
                    continue
                if isinstance(outcome, Exception):
                    write.answer.set_exception(outcome)
                else:
                    write.answer.set_result(outcome)

    def _next_batch(self) -> list[_Write]:
        """The next writes: at least one, and at most `MOST_TOGETHER` rows."""
        rows = 0
        for place, write in enumerate(self._waiting):
            rows += write.rows
            if place and rows > MOST_TOGETHER:
                batch, self._waiting = self._waiting[:place], self._waiting[place:]
                return batch
        batch, self._waiting = self._waiting, []
        return batch

    # -- on the thread ---------------------------------------------------------------------------------------------

    def _commit(self, batch: Sequence[_Write]) -> Sequence[_Outcome]:
        """Commit in one transaction. If that fails with an error that one write may have caused, commit each separately."""
        try:
            return self._transaction(batch)
        except Exception as error:
            if len(batch) == 1 or _code(error) in _FOR_ALL:
                return [error] * len(batch)
        return [self._commit([write])[0] for write in batch]

    def _transaction(self, batch: Sequence[_Write]) -> Sequence[set[str]]:
        try:
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = [_carry_out(connection, write) for write in batch]
                connection.execute("COMMIT")
            except BaseException:
                # Also after a failed commit: the transaction is still open, and its writes must not take effect later.
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            if _code(error) not in _CONNECTION_IS_GOOD:
                self._disconnect()
            raise
        return done

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 for errors that are not SQLite's."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def _carry_out(connection: sqlite3.Connection, write: _Write) -> set[str]:
    """Execute a write inside a transaction without other writers; returns the successful ids."""
    table, creates, rewrites = write.table, write.creates, write.rewrites
    if len(rewrites) == 1 and not creates:  # the most frequent case: the statement itself compares the version
        row = rewrites[0]
        changed = connection.execute(_update_at(table), (*row[1:], row[0], row[1] - 1)).rowcount
        return {row[0]} if changed == 1 else set()
    wanted = orjson.dumps([row[0] for row in (*creates, *rewrites)]).decode()
    versions = dict(connection.execute(_versions(table), (wanted,)).fetchall())
    new = [row for row in creates if row[0] not in versions]
    fitting = [row for row in rewrites if versions.get(row[0]) == row[1] - 1]
    if new:
        connection.executemany(_insert(table), new)
    if fitting:
        connection.executemany(_update(table), [(*row[1:], row[0]) for row in fitting])
    return {row[0] for row in (*new, *fitting)}


@cache
def _versions(table: Table) -> str:
    """The query for the existing ids of a list, and their versions where the table has them."""
    listed = select(func.json_each(bindparam(None, "", type_=Text())).table_valued("value").c.value)
    shown = select(table.c.id, table.c.get("version", null())).where(table.c.id.in_(listed))
    return str(shown.compile(dialect=sqlite.dialect()))


@cache
def _insert(table: Table) -> str:
    return str(insert(table).compile(dialect=sqlite.dialect()))


@cache
def _update(table: Table) -> str:
    values = {place: bindparam(None, type_=place.type) for place in table.columns if place.name != "id"}
    statement = update(table).values(values).where(table.c.id == bindparam("key", type_=table.c.id.type))
    return str(statement.compile(dialect=sqlite.dialect()))


@cache
def _update_at(table: Table) -> str:
    return f'{_update(table)} AND {table.name}."version" = ?'
