"""A SQLite file that was damaged and repaired under a running process is used again without a restart."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import DocumentChange, Written

MAGIC = b"SQLite format 3\0"


def _overwrite(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, data, 0)
    os.close(descriptor)


@pytest.mark.finding("F-B1")
async def test_a_repaired_file_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqlJobStore(f"sqlite:///{path}")
    await store.open()
    try:
        (written,) = await store.write([DocumentChange(job("one"), None)])
        assert isinstance(written, Written)
        assert await store.get(["one"])
        other = sqlite3.connect(path, timeout=30)
        other.execute("PRAGMA user_version = 7")  # what was read before is no longer true
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        _overwrite(path, bytes(len(MAGIC)))
        with pytest.raises(Transient):
            await store.get(["one"])
        _overwrite(path, MAGIC)
        (written,) = await store.write([DocumentChange(job("two"), None)])
        assert isinstance(written, Written)
        assert set(await store.get(["one", "two"])) == {"one", "two"}
    finally:
        await store.close()
