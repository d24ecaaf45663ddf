"""PostgreSQL connections for single statements with automatic commit.

Every job is created, claimed and ended by such statements, many times a second. Through SQLAlchemy each costs about a
millisecond more on a system that was idle, most of what the store takes to start a job; so these go to the driver directly.
The pools of SQLAlchemy and of the driver are not used either: to take a connection out of one and put it back costs about
0.1 ms, twice as much as to send a statement, and made the write of a single job a third slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import asyncpg  # type: ignore[import-untyped]

NEVER_EARLY = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
"""A server may be set up to answer a commit before it is on disk; not for us."""


GIVE_UP = 2.0
"""Seconds until a connection that does not close is cut."""


class Connections:
    """A few connections, made when they are needed; one that may be broken is never used again."""

    def __init__(self, arguments: Mapping[str, Any], *, most: int, timeout: float) -> None:
        self._arguments = arguments
        self._timeout = timeout
        self._room = asyncio.Semaphore(most)
        self._idle: list[Any] = []

    async def fetch(self, *statements: tuple[str, Sequence[Any]]) -> list[Any]:
        """Carry statements with their values out, all or none; what they give back. Durable when this returns, if they change anything."""
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
                # Also after an error that the server itself told: the last one of a server that goes down looks no different.
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
        """Close what is open; nobody may be at work."""
        while self._idle:
            await _give_up(self._idle.pop())


async def _give_up(connection: Any) -> None:
    """Close a connection. If a statement is late the server is told to cancel it first, so that it hardly ever takes effect after all."""
    try:
        await connection.close(timeout=GIVE_UP)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        connection.terminate()
