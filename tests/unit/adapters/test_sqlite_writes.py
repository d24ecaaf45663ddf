"""Writes to a SQLite file that are asked for at once share a commit, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.examples import job

from forestay.adapters.sql.dialects import Sqlite, connected
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.rows import Row
from forestay.adapters.sql.sqlite_writes import MOST_TOGETHER, SqliteWrites
from forestay.adapters.sql.tables import documents
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.jobs.job_store import Conflicted, DocumentChange, Version, Written

PATIENCE = 0.2


def row(name: str, version: int = 1, tenant: object = "alpha") -> Row:
    return (name, version, tenant, "note", b"{}")


@dataclass
class Traced:
    """Connections whose statements are noted."""

    path: Path
    made: list[sqlite3.Connection] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def connect(self) -> sqlite3.Connection:
        connection = connected(str(self.path), PATIENCE)
        connection.set_trace_callback(self.statements.append)
        self.made.append(connection)
        return connection

    def commits(self) -> int:
        return self.statements.count("COMMIT")


@pytest_asyncio.fixture
async def traced(tmp_path: Path) -> Traced:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    await store.open()
    await store.close()
    return Traced(tmp_path / "jobs.db")


@pytest_asyncio.fixture
async def writes(traced: Traced) -> AsyncIterator[SqliteWrites]:
    writes = SqliteWrites(traced.connect, asyncio.Lock())
    yield writes
    await writes.close()


async def test_what_is_asked_for_at_once_shares_a_commit(writes: SqliteWrites, traced: Traced) -> None:
    done = await asyncio.gather(*(writes.write(documents, [row(f"d{number}")], ()) for number in range(50)))
    assert done == [{f"d{number}"} for number in range(50)]
    assert traced.commits() == 1
    await writes.write(documents, (), [row("d7", 2)])
    assert traced.commits() == 2, "a write alone waits for nobody"


async def test_a_commit_takes_no_more_rows_than_others_may_wait_for(writes: SqliteWrites, traced: Traced) -> None:
    large = [row(f"large{number}") for number in range(MOST_TOGETHER)]
    await asyncio.gather(writes.write(documents, large, ()), writes.write(documents, [row("small")], ()))
    assert traced.commits() == 2


async def test_each_is_answered_by_its_own_version(writes: SqliteWrites) -> None:
    await writes.write(documents, [row("a"), row("b")], ())
    answers = await asyncio.gather(
        writes.write(documents, (), [row("a", 2)]),
        writes.write(documents, (), [row("a", 2)]),  # in the same commit, behind the first
        writes.write(documents, (), [row("a", 3), row("b", 3)]),
        writes.write(documents, [row("a"), row("c")], [row("b", 2)]),
        writes.write(documents, (), [row("missing", 2)]),
    )
    assert list(answers) == [{"a"}, set(), {"a"}, {"b", "c"}, set()]


async def test_what_cannot_be_stored_fails_alone(writes: SqliteWrites) -> None:
    answers = await asyncio.gather(
        writes.write(documents, [row("good")], ()),
        writes.write(documents, [row("bad", tenant=object())], ()),
        writes.write(documents, [row("none", tenant=None)], ()),
        writes.write(documents, [row("better")], ()),
        return_exceptions=True,
    )
    assert answers[0] == {"good"}
    assert isinstance(answers[1], sqlite3.Error)
    assert isinstance(answers[2], sqlite3.IntegrityError)
    assert answers[3] == {"better"}
    assert await writes.write(documents, [row("bad"), row("none")], ()) == {"bad", "none"}, "nothing of them is there"


async def test_a_lock_that_somebody_holds_is_waited_for_once(writes: SqliteWrites, traced: Traced) -> None:
    await writes.write(documents, [row("first")], ())
    other = sqlite3.connect(traced.path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        traced.statements.clear()
        many = [writes.write(documents, [row(f"d{number}")], ()) for number in range(20)]
        answers = await asyncio.gather(*many, return_exceptions=True)
    finally:
        other.close()
    assert {getattr(answer, "sqlite_errorcode", None) for answer in answers} == {sqlite3.SQLITE_BUSY}
    assert traced.statements.count("BEGIN IMMEDIATE") <= 1, "not once for each of them"
    assert await writes.write(documents, [row("d0")], ()) == {"d0"}
    assert len(traced.made) == 1, "the connection was good all the time"


async def test_a_connection_that_broke_is_not_used_again(writes: SqliteWrites, traced: Traced) -> None:
    await writes.write(documents, [row("a")], ())
    traced.made[0].execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError):
        await writes.write(documents, [row("b")], ())
    assert await writes.write(documents, [row("b")], ()) == {"b"}
    assert len(traced.made) == 2


async def test_a_caller_that_goes_away_holds_nobody_up(writes: SqliteWrites) -> None:
    gone = asyncio.create_task(writes.write(documents, [row("a")], ()))
    stays = asyncio.create_task(writes.write(documents, [row("b")], ()))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == {"b"}


async def test_nobody_waits_for_a_commit_that_was_given_up(traced: Traced) -> None:
    turn = asyncio.Lock()
    writes = SqliteWrites(traced.connect, turn)
    async with turn:
        waiting = asyncio.create_task(writes.write(documents, [row("a")], ()))
        await asyncio.sleep(0.01)  # it has begun, and waits for its turn
        assert writes._work is not None
        writes._work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert await writes.write(documents, [row("a")], ()) == {"a"}
    await writes.close()


async def test_what_was_closed_is_opened_again_by_a_write(writes: SqliteWrites, traced: Traced) -> None:
    await writes.write(documents, [row("a")], ())
    await writes.close()
    with pytest.raises(sqlite3.ProgrammingError):
        traced.made[0].execute("SELECT 1")
    assert await writes.write(documents, [row("b")], ()) == {"b"}


async def test_a_commit_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    connection = connected(str(tmp_path / "new.db"), PATIENCE)
    try:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert (tmp_path / "new.db").stat().st_mode & 0o077 == 0
    finally:
        connection.close()


async def test_other_changes_of_the_process_take_turns_with_writes(tmp_path: Path) -> None:
    """SQLite tells one that meets the lock of another to try again later, for ever if others are faster."""
    store = SqlJobStore(f"sqlite:///{tmp_path / 'jobs.db'}", timeout=0.2)
    await store.open()
    dialect = store.database.dialect
    assert isinstance(dialect, Sqlite)
    try:
        async with dialect.changing():
            writing = asyncio.create_task(store.write([DocumentChange(job("a"), None)]))
            await asyncio.sleep(0.5)  # longer than a lock is waited for
            assert not writing.done()
        (result,) = await writing
        assert isinstance(result, Written)
    finally:
        await store.close()


async def test_claims_at_once_are_one_commit_and_only_one_takes_a_job(tmp_path: Path) -> None:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'jobs.db'}")
    await store.open()
    try:
        await store.write([DocumentChange(job("a"), None)])
        rewritten: partial[JobDocument] = partial(job, "a")
        results = await asyncio.gather(*(store.write([DocumentChange(rewritten(), Version(1, 1))]) for _ in range(10)))
        assert sum(isinstance(result, Written) for (result,) in results) == 1
        assert sum(isinstance(result, Conflicted) for (result,) in results) == 9
    finally:
        await store.close()
