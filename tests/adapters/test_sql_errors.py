"""Which errors of SQLAlchemy, asyncpg and SQLite may pass, and which will not."""

from __future__ import annotations

import sqlite3

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from holdfast.adapters.sql.errors import meaning, translated
from holdfast.ports.errors import Permanent, PortError, Transient


def sqlite_error(code: int) -> OperationalError:
    origin = sqlite3.OperationalError("says SQLite")
    origin.sqlite_errorcode = code
    return OperationalError("SELECT secret", {"secret": "secret"}, origin)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(), Transient),
        (TimeoutError(), Transient),
        (NoConnectionFree("none free"), Transient),
        (asyncpg.CannotConnectNowError("starting up"), Transient),
        (asyncpg.AdminShutdownError("shutting down"), Transient),
        (asyncpg.DeadlockDetectedError("deadlock"), Transient),
        (asyncpg.InternalClientError("another operation is in progress"), Transient),
        (asyncpg.TooManyConnectionsError("too many"), Transient),
        (asyncpg.DiskFullError("disk full"), Transient),
        (asyncpg.ReadOnlySQLTransactionError("a standby"), Transient),
        (asyncpg.ConnectionDoesNotExistError("cut"), Transient),
        (asyncpg.InternalServerError("who knows"), Transient),
        (asyncpg.InvalidPasswordError("password"), Permanent),
        (asyncpg.InvalidCatalogNameError("no such database"), Permanent),
        (asyncpg.UndefinedTableError("no such table"), Permanent),
        (asyncpg.InsufficientPrivilegeError("not allowed"), Permanent),
        (sqlite_error(sqlite3.SQLITE_BUSY), Transient),
        (sqlite_error(sqlite3.SQLITE_FULL), Transient),
        (sqlite_error(sqlite3.SQLITE_IOERR_FSYNC), Transient),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), Transient),
        (sqlite_error(sqlite3.SQLITE_CORRUPT), Permanent),
        (sqlite_error(sqlite3.SQLITE_READONLY), Permanent),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_table(error: Exception, kind: type[PortError]) -> None:
    assert type(meaning(error)) is kind


def test_statements_and_their_values_stay_out_of_the_text() -> None:
    assert str(meaning(sqlite_error(sqlite3.SQLITE_BUSY))) == "OperationalError: says SQLite"


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError
