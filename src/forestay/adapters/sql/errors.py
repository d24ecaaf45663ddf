"""Classifies the errors of SQLAlchemy, asyncpg and SQLite: whether a retry can help."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from forestay.ports.errors import Permanent, PortError, Transient

VENDOR_ERRORS = (
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    sqlite3.Error,
    OSError,
)
"""Timeouts and refused connections are `OSError`s; a connection that breaks under a statement may be the driver's internal error."""

_OF_THE_REQUEST_STATES: tuple[str, ...] = ("22", "23", "54")
"""Classes of PostgreSQL's SQLSTATE that follow from the values of a request: data, integrity, limits."""
_OF_THE_SETUP_STATES = ("0A", "28", "3D", "3F", "42")
"""Feature, authorization, names, syntax or privilege. Statements do not come from callers, so at run time these mean that the
database changed under the server (a renamed table, a changed password): an operator repairs that, and the request was right."""

_OF_THE_REQUEST_CODES = frozenset({sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""SQLite's primary result codes, divided in the same way."""
_OF_THE_SETUP_CODES = frozenset(
    {
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    }
)


def meaning(error: Exception, *, checking_setup: bool = False) -> PortError:
    """The port's error for a vendor's.

    `Permanent` only if the error follows from the values of the request: a caller may discard what was refused for good. While
    the set-up itself is checked (at start, by `doctor`), an error of the set-up is `Permanent` too.
    """
    origin: object = error.orig if isinstance(error, DBAPIError) else error
    state = getattr(origin, "sqlstate", None)
    code = getattr(origin, "sqlite_errorcode", None)
    text = f"{type(origin).__name__}: {origin}"
    states, codes = _OF_THE_REQUEST_STATES, _OF_THE_REQUEST_CODES
    if checking_setup:
        states, codes = states + _OF_THE_SETUP_STATES, codes | _OF_THE_SETUP_CODES
    if isinstance(state, str) and state.startswith(states):
        return Permanent(text)
    if isinstance(code, int) and code & 0xFF in codes:
        return Permanent(text)
    return Transient(text)


@contextmanager
def translated(*, checking_setup: bool = False) -> Iterator[None]:
    """Raise the port's errors instead of the vendors'."""
    try:
        yield
    except VENDOR_ERRORS as error:
        raise meaning(error, checking_setup=checking_setup) from error
