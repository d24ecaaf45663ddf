"""Which errors of SQLAlchemy, asyncpg and SQLite may pass, and which will not."""

from __future__ import annotations

import sqlite3

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from forestay.adapters.sql.errors import meaning, translated
from forestay.ports.errors import Permanent, PortError, Transient


def sqlite_error(code: int) -> OperationalError:
    origin = sqlite3.OperationalError("says SQLite")
    origin.sqlite_errorcode = code
    return OperationalError("SELECT secret", {"secret": "secret"}, origin)


@pytest.mark.finding("F-B1")
@pytest.mark.parametrize(
    ("error", "kind", "kind_at_start"),
    [
        (ConnectionRefusedError(), Transient, Transient),
        (TimeoutError(), Transient, Transient),
        (NoConnectionFree("none free"), Transient, Transient),
        (asyncpg.CannotConnectNowError("starting up"), Transient, Transient),
        (asyncpg.AdminShutdownError("shutting down"), Transient, Transient),
        (asyncpg.DeadlockDetectedError("deadlock"), Transient, Transient),
        (asyncpg.InternalClientError("another operation is in progress"), Transient, Transient),
        (asyncpg.TooManyConnectionsError("too many"), Transient, Transient),
        (asyncpg.DiskFullError("disk full"), Transient, Transient),
        (asyncpg.ReadOnlySQLTransactionError("a standby"), Transient, Transient),
        (asyncpg.ConnectionDoesNotExistError("cut"), Transient, Transient),
        (asyncpg.InternalServerError("who knows"), Transient, Transient),
        (asyncpg.DataCorruptedError("a damaged page"), Transient, Transient),
        (asyncpg.InvalidPasswordError("password"), Transient, Permanent),
        (asyncpg.InvalidCatalogNameError("no such database"), Transient, Permanent),
        (asyncpg.InvalidSchemaNameError("no such schema"), Transient, Permanent),
        (asyncpg.UndefinedTableError("no such table"), Transient, Permanent),
        (asyncpg.UndefinedColumnError("no such column"), Transient, Permanent),
        (asyncpg.InsufficientPrivilegeError("not allowed"), Transient, Permanent),
        (asyncpg.InvalidCachedStatementError("the table was altered"), Transient, Permanent),
        (asyncpg.NumericValueOutOfRangeError("a huge number"), Permanent, Permanent),
        (asyncpg.NotNullViolationError("no tenant"), Permanent, Permanent),
        (asyncpg.ProgramLimitExceededError("a text that is too long for an index"), Permanent, Permanent),
        (sqlite_error(sqlite3.SQLITE_BUSY), Transient, Transient),
        (sqlite_error(sqlite3.SQLITE_FULL), Transient, Transient),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), Transient, Transient),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), Transient, Transient),
        (sqlite_error(sqlite3.SQLITE_ERROR), Transient, Permanent),
        (sqlite_error(sqlite3.SQLITE_PERM), Transient, Permanent),
        (sqlite_error(sqlite3.SQLITE_CORRUPT), Transient, Permanent),
        (sqlite_error(sqlite3.SQLITE_NOTADB), Transient, Permanent),
        (sqlite_error(sqlite3.SQLITE_READONLY), Transient, Permanent),
        (sqlite_error(sqlite3.SQLITE_TOOBIG), Permanent, Permanent),
        (sqlite_error(sqlite3.SQLITE_CONSTRAINT_NOTNULL), Permanent, Permanent),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_only_an_error_of_the_values_is_the_callers(
    error: Exception, kind: type[PortError], kind_at_start: type[PortError]
) -> None:
    assert type(meaning(error)) is kind
    assert type(meaning(error, checking_setup=True)) is kind_at_start


def test_statements_and_their_values_stay_out_of_the_text() -> None:
    assert str(meaning(sqlite_error(sqlite3.SQLITE_BUSY))) == "OperationalError: says SQLite"


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError
