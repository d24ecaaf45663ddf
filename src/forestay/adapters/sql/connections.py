"""PostgreSQL connections for single statements with automatic commit.

Every job is created, claimed and ended by such statements, many times a second. Through SQLAlchemy each costs about a
millisecond more on an idle system, most of the store's time to start a job; so these go to the driver directly.
The pools of SQLAlchemy and of the driver are not used either: taking a connection out of a pool and returning it costs about
0.1 ms, twice as much as sending a statement, and made the write of a single job a third slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import asyncpg  # type: ignore[import-untyped]

NEVER_EARLY = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""Ensures that a commit is on disk before it is answered, whatever the server's default."""


GIVE_UP = 2.0
"""Seconds until a connection that does not close is cut."""


class Connections:
    """A few connections, opened when needed; one that may be broken is never used again."""

    def __init__(self, arguments: Mapping[str, Any], *, most: int, timeout: float) -> None:
        self._arguments = arguments
        self._timeout = timeout
        self._room = asyncio.Semaphore(most)
        self._idle: list[Any] = []

    async def fetch(self, *statements: tuple[str, Sequence[Any]]) -> list[Any]:
        """Execute statements with their values, all or none, and return their results. Changes are durable when this returns."""
        async with asyncio.timeout(self._timeout):
            await self._room.acquire()
        try:
            connection = await self._connection()
            try:
                async with connection.transaction() if len(statements) > 1 else nullcontext():
                    rows = [
                        row for statement, values in statements for row in await connection.fetch(statement, *values)
                    ]
            except BaseException:
                # Also after an error reported by the server itself: the last one before a shutdown looks the same.
                await _give_up(connection)
                raise
            if not connection.is_closed():
                self._idle.append(connection)
            return rows
        finally:
            self._room.release()

    async def _connection(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        connection = await asyncpg.connect(**self._arguments)
        try:
            await connection.execute(NEVER_EARLY)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def close(self) -> None:
        """Close all connections; none may be in use."""
        while self._idle:
            await _give_up(self._idle.pop())


async def _give_up(connection: Any) -> None:
    """Close a connection. A late statement is cancelled at the server first, so that it hardly ever takes effect after all."""
    try:
        await connection.close(timeout=GIVE_UP)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        connection.terminate()
