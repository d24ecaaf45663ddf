"""What the errors of SQLAlchemy, asyncpg and SQLite mean: whether trying again can help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from holdfast.ports.errors import Permanent, PortError, Transient

VENDOR_ERRORS = (
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    sqlite3.Error,
    OSError,
)
"""Timeouts and refused connections are `OSError`s; a connection that breaks under a statement may be the driver's internal error."""

_PERMANENT_STATES = ("0A", "22", "23", "28", "3D", "3F", "42", "54")
"""Classes of PostgreSQL's SQLSTATE: feature, data, integrity, authorization, names, syntax or privilege, limits."""

_PERMANENT_CODES = frozenset(
    {
        sqlite3.SQLITE_ERROR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT,
    }
)  # fmt: skip
"""SQLite's primary result codes. Busy, locked, full and input/output errors may pass."""


def meaning(error: Exception) -> PortError:
    """The port's error for a vendor's. What is not known may pass: nothing is given up for lack of a name."""
    origin: object = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(origin, "sqlstate", None)
    code = getattr(origin, "sqlite_errorcode", None)
    text = f"{type(origin).__name__}: {origin}"
    if isinstance(state, str) and state.startswith(_PERMANENT_STATES):
        return Permanent(text)
    if isinstance(code, int) and code & 0xFF in _PERMANENT_CODES:
        return Permanent(text)
    return Transient(text)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the port's errors instead of the vendors'."""
    try:
        yield
    except VENDOR_ERRORS as error:
        raise meaning(error) from error
