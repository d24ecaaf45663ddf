"""The file of a SQLite store."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from forestay.adapters.sql.database import SqlDatabase


def modes_in(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.finding("F-C6")
async def test_a_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    """It holds the parameters and logs of all tenants."""
    before = os.umask(0o022)
    database = SqlDatabase(f"sqlite:///{tmp_path}/store.db")
    try:
        await database.open()
        files = modes_in(tmp_path)
        assert files.pop("store.db") == 0o600
        assert set(files.values()) <= {0o600}, files
    finally:
        os.umask(before)
        await database.close()


async def test_the_mode_of_a_store_that_exists_is_its_operators(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(0o660)
    path.chmod(0o660)
    database = SqlDatabase(f"sqlite:///{path}")
    await database.open()
    await database.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
