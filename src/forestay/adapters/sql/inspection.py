"""Inspects a database without changing it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from sqlalchemy import Connection, inspect, select, text

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import translated
from forestay.adapters.sql.tables import LAYOUT, TAKEN, jobs, layout, metadata
from forestay.ports.inspections import StoreInspection

OLDEST_POSTGRES = 15
LEAST_FREE = 64 << 20
"""Bytes below which the disk of a SQLite file counts as full."""


async def inspect_database(database: SqlDatabase) -> StoreInspection:
    """Version, tables, layout and clock."""
    place = database.dialect.reader.url
    if place.get_backend_name() == "sqlite" and not Path(place.database or "").exists():  # noqa: ASYNC240 - nobody else waits
        return StoreInspection("SQLite", lacking=(f"the file {place.database}",))
    with translated(checking_setup=True):
        async with database.dialect.reader.connect() as connection:
            return await connection.run_sync(_look)


def _sqlite_file(connection: Connection) -> list[str]:
    """What is wrong with the file of a SQLite store."""
    path = Path(connection.engine.url.database or "")
    wrong = []
    damage = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    if damage != "ok":
        wrong.append(f"the file is damaged: {damage}")
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        wrong.append(f"{path} or its folder cannot be written")
    left = shutil.disk_usage(path.parent).free
    if left < LEAST_FREE:
        wrong.append(f"its disk has {left >> 20} MiB left")
    return wrong


def _look(connection: Connection) -> StoreInspection:
    looked = inspect(connection)
    there = {*looked.get_table_names()}
    lacking = tuple(sorted({table.name for table in metadata.tables.values()} - there))
    wrong: list[str] = []
    notes: list[str] = []
    number = connection.execute(select(layout.c.number)).scalar() if layout.name in there else None
    if number is not None and number > TAKEN:
        wrong.append(f"its tables have layout {number}, created by a newer release; this release supports {LAYOUT}")
    elif number is not None and number < LAYOUT:
        notes.append(f"its tables have layout {number}; the next server of this release upgrades them to {LAYOUT}")
    elif number is not None and jobs.name in there:
        columns = {column["name"] for column in looked.get_columns(jobs.name)}
        if gone := sorted({column.name for column in jobs.columns} - columns):
            wrong.append(f"the table jobs has no column {', '.join(gone)}")
    if connection.dialect.name != "postgresql":
        version = connection.execute(text("SELECT sqlite_version()")).scalar()
        wrong += _sqlite_file(connection)
        return StoreInspection(f"SQLite {version}", lacking, tuple(wrong), tuple(notes))
    shown = connection.execute(
        text(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_setting('fsync'), "
            "current_setting('full_page_writes'), pg_is_in_recovery(), extract(epoch FROM clock_timestamp())::float8, "
            "current_setting('default_transaction_read_only'), current_setting('search_path')"
        )
    ).one()
    ahead = shown[5] - time.time()
    if shown[1] < OLDEST_POSTGRES * 10_000:
        wrong.append(f"PostgreSQL {shown[0]} is older than {OLDEST_POSTGRES}")
    for name, value in (("fsync", shown[2]), ("full_page_writes", shown[3])):
        if value != "on":
            wrong.append(f"{name} is {value}: a power failure may lose accepted jobs")
    if shown[4]:
        wrong.append("this is a standby, which is read-only")
    elif shown[6] == "on":
        wrong.append("the database is read-only (default_transaction_read_only)")
    if lacking and there.isdisjoint(metadata.tables):
        notes.append(f"no table of Forestay is in the search path ({shown[7]})")
    return StoreInspection(f"PostgreSQL {shown[0]}", lacking, tuple(wrong), tuple(notes), ahead)
