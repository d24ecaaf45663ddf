"""What the SQL stores promise beyond the contract: durable commits, locks that end, indexes that are used."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg  # type: ignore[import-untyped]
import pytest
import pytest_asyncio
from sqlalchemy import event, make_url, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests import servers
from tests.contract.examples import NOW, job, record

from forestay.adapters.sql.dialects import Postgres
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.tables import layout
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.inbox import InboxTally
from forestay.domain.exceptions.incidents.incident import Incident, IncidentState, status_of
from forestay.domain.jobs.job_document import FlowRef, State, lane_of
from forestay.domain.jobs.resources import Resources
from forestay.ports.errors import Permanent, Transient
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.jobs.job_store import DocumentChange, JobQuery, Stored, Unknown, Version, Written
from forestay.services.operations.domain_counter import UNCLOSED

WINDOW = JobQuery(
    states=frozenset({State.AVAILABLE}),
    anyof={"lane": [str(lane_of(job()))]},
    at_most={"not_before": NOW},
    held=False,
    slots=frozenset(range(0, 1024, 2)),
)


async def ask(store: SqlJobStore, statement: str) -> list[str]:
    """The first column of an answer."""
    return [str(row[0]) for row in await store.database.rows(text(statement))]


async def ask_directly(store: SqlJobStore, statement: str) -> list[str]:
    """The same over the connections by which jobs are written to PostgreSQL."""
    dialect = store.database.dialect
    assert isinstance(dialect, Postgres)
    return [str(row[0]) for row in await dialect.direct.fetch((statement, ()))]


async def sent_for(store: SqlJobStore, cursor: str | None) -> tuple[str, tuple[Any, ...]]:
    """The very statement that a search for a window sends, and its values."""
    sent: list[tuple[str, tuple[Any, ...]]] = []

    def note(_c: object, _k: object, statement: str, values: tuple[Any, ...], _x: object, _m: object) -> None:
        sent.append((statement, values))

    engine = store.database.dialect.reader.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    await store.search(WINDOW, sort="rank", limit=100, cursor=cursor)
    event.remove(engine, "before_cursor_execute", note)
    return sent[-1]


class TestSqlite:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "jobs.db"

    @pytest_asyncio.fixture
    async def store(self, path: Path) -> AsyncIterator[SqlJobStore]:
        store = SqlJobStore(f"sqlite:///{path}", timeout=0.2)
        await store.open()
        yield store
        await store.close()

    async def test_a_commit_is_on_disk_when_it_is_answered(self, store: SqlJobStore) -> None:
        for engine in (store.database.dialect.writer, store.database.dialect.reader):
            async with engine.connect() as connection:
                assert (await connection.execute(text("PRAGMA journal_mode"))).scalar() == "wal"
                assert (await connection.execute(text("PRAGMA synchronous"))).scalar() == 2

    async def test_while_someone_else_writes_others_read_and_a_write_is_unknown(
        self, store: SqlJobStore, path: Path
    ) -> None:
        await store.write([DocumentChange(job("a"), None)])
        other = sqlite3.connect(path, isolation_level=None)
        try:
            other.execute("BEGIN IMMEDIATE")
            (result,) = await store.write([DocumentChange(job("b"), None)])
            assert isinstance(result, Unknown)
            with pytest.raises(Transient):
                await store.add_records([record("r")])
            assert (await store.get(["a", "b"])).keys() == {"a"}
            other.execute("ROLLBACK")
        finally:
            other.close()
        (result,) = await store.write([DocumentChange(job("b"), None)])
        assert isinstance(result, Written)

    async def test_a_file_that_is_no_database_is_refused_for_good(self, tmp_path: Path) -> None:
        (tmp_path / "text.db").write_text("not a database, but long enough to look like one" * 100)
        store = SqlJobStore(f"sqlite:///{tmp_path / 'text.db'}")
        with pytest.raises(Permanent):
            await store.open()
        await store.close()

    @pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://localhost/jobs"])
    def test_what_would_not_last_is_refused(self, url: str) -> None:
        with pytest.raises(Permanent):
            SqlJobStore(url)

    async def test_a_window_of_candidates_is_one_run_of_its_index(self, store: SqlJobStore) -> None:
        for cursor in (None, await _cursor(store)):
            statement, values = await sent_for(store, cursor)
            async with store.database.dialect.reader.connect() as connection:
                lines: Any = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
                returned_text = "\n".join(line[3] for line in lines)
            assert "USING INDEX jobs_queue (lane=?" in returned_text
            assert "TEMP B-TREE" not in returned_text

    async def test_tables_of_a_newer_release_are_refused(self, store: SqlJobStore) -> None:
        await store.database.run(update(layout).values(number=99))
        with pytest.raises(Permanent, match="99"):
            await store.open()

    async def test_tables_of_the_first_layout_are_brought_up_to_date(self, store: SqlJobStore) -> None:
        for index in ("jobs_run", "jobs_ended", "jobs_over"):
            await store.database.run(text(f"DROP INDEX {index}"))
        for column in ("run", "work", "ended"):
            await store.database.run(text(f'ALTER TABLE jobs DROP COLUMN "{column}"'))
        await store.database.run(text("DROP TABLE documents"))
        await store.database.run(update(layout).values(number=1))
        await store.open()
        tied = job("tied", flow_ref=FlowRef("c", "w@1", "f", -1, 0, 1), state=State.COMPLETED)
        (result,) = await store.write([DocumentChange(tied, None)])
        assert isinstance(result, Written)
        page = await store.search(JobQuery(at_least={"ended": 0}, anyof={"run": ["c"]}), sort="ended")
        assert [stored.document for stored in page.jobs] == [tied]
        await store.open()  # once more changes nothing

    @pytest.mark.finding("F-D16")
    @pytest.mark.parametrize("kind", [None, ExceptionType.ABORT.value])
    async def test_what_is_held_is_found_for_all_tenants_by_an_index(
        self, store: SqlJobStore, kind: str | None
    ) -> None:
        incidents = SqlIncidentStore(store.database)
        sent: list[tuple[str, Any]] = []

        def note(_c: object, _k: object, statement: str, values: Any, _x: object, _m: object) -> None:
            sent.append((statement, values))

        engine = store.database.dialect.reader
        event.listen(engine.sync_engine, "before_cursor_execute", note)
        for states in ({IncidentState.HELD}, UNCLOSED):
            query = IncidentQuery(kind=kind, states=frozenset(states))
            await incidents.find(query)
            await incidents.count(query, by="state")
        event.remove(engine.sync_engine, "before_cursor_execute", note)
        async with engine.connect() as connection:
            for statement, values in sent:
                lines: Any = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
                plan = " ".join(str(line[3]) for line in lines)
                assert "incident_status_open" in plan, plan

    async def test_additions_do_not_keep_the_release_before_out(self, store: SqlJobStore) -> None:
        async with store.database.dialect.writer.begin() as connection:
            assert (await connection.execute(select(layout.c.number))).scalar() == 2
        await store.database.run(update(layout).values(number=4))  # as it was said for a while
        await store.open()
        async with store.database.dialect.writer.begin() as connection:
            assert (await connection.execute(select(layout.c.number))).scalar() == 2

    async def test_incidents_of_the_second_layout_are_counted_in_the_inbox(self, store: SqlJobStore) -> None:
        incidents = SqlIncidentStore(store.database)
        made = Incident("i1", "alpha", "ada", ExceptionType.ABORT, NOW, cause="memory")
        await incidents.add_incidents([(made, replace(status_of(made), state=IncidentState.HELD))])
        for index in ("incident_status_inbox_groups", "incident_status_changed", "incident_status_fingerprint"):
            await store.database.run(text(f"DROP INDEX {index}"))
        for column in ("second", "core_seconds", "fingerprint"):
            await store.database.run(text(f"ALTER TABLE incident_status DROP COLUMN {column}"))
        await store.database.run(update(layout).values(number=2))
        await store.open()
        waiting = [
            InboxTally(IncidentState.HELD, False, "", "", "memory", "ada", 1, 0, "i1", NOW, NOW, frozenset({""}))
        ]
        assert await incidents.inbox_tallies(IncidentQuery("alpha")) == waiting
        assert await incidents.count(IncidentQuery("alpha"), by="fingerprint") == {"": 1}
        again = replace(made, id="i2")
        await incidents.add_incidents([(again, status_of(again))])
        (found,) = (await incidents.find(IncidentQuery("alpha", fingerprint=status_of(again).fingerprint))).statuses
        assert found.status == status_of(again)

    async def test_keys_and_numbers_that_no_index_takes_are_refused_for_good(self, store: SqlJobStore) -> None:
        for document in (
            job("x" * 1001),
            job(owner="é" * 600),
            job(specification="s" * 2000),
            job(resources=Resources(memory=2**63)),
        ):
            with pytest.raises(Permanent):
                await store.write([DocumentChange(document, None)])
        (result,) = await store.write([DocumentChange(job("x" * 1000, name="n" * 100_000), None)])
        assert isinstance(result, Written)


async def _cursor(store: SqlJobStore) -> str:
    """The cursor of a window that has more jobs than were asked for."""
    await store.write([DocumentChange(job(f"job-{number:04}"), None) for number in range(3000)])
    await store.database.run(text("ANALYZE"))
    first = await store.search(WINDOW, sort="rank", limit=100)
    assert first.cursor is not None
    return first.cursor


@pytest.mark.live
class TestPostgres:
    @pytest_asyncio.fixture
    async def admin(self) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(make_url(servers.postgres()).set(drivername="postgresql+asyncpg"))
        yield engine
        await engine.dispose()

    @pytest_asyncio.fixture
    async def schema(self, admin: AsyncEngine) -> AsyncIterator[str]:
        name = f'odd "{uuid4().hex}'
        yield name
        async with admin.begin() as connection:
            quoted = connection.dialect.identifier_preparer.quote_identifier(name)
            await connection.execute(text(f"DROP SCHEMA {quoted} CASCADE"))

    @pytest_asyncio.fixture
    async def store(self, schema: str) -> AsyncIterator[SqlJobStore]:
        store = SqlJobStore(servers.postgres(), schema=schema, timeout=10)
        await store.open()
        yield store
        await store.close()

    async def test_a_commit_is_on_disk_when_it_is_answered_whatever_the_server_prefers(
        self, admin: AsyncEngine
    ) -> None:
        role = f"careless_{uuid4().hex}"
        async with admin.begin() as connection:
            await connection.execute(text(f"CREATE ROLE {role} LOGIN SUPERUSER"))
            await connection.execute(text(f"ALTER ROLE {role} SET synchronous_commit = off"))
        url = make_url(servers.postgres()).set(username=role)
        store = SqlJobStore(url.render_as_string(hide_password=False))
        try:
            assert await ask(store, "SHOW synchronous_commit") == ["on"]
            assert await ask_directly(store, "SHOW synchronous_commit") == ["on"]
        finally:
            await store.close()
            async with admin.begin() as connection:
                await connection.execute(text(f"DROP ROLE {role}"))

    @pytest.mark.finding("F-G1")
    async def test_a_complete_store_is_opened_while_somebody_else_makes_tables(
        self, store: SqlJobStore, schema: str, admin: AsyncEngine
    ) -> None:
        """The lock is one for all schemas of a database: sixty processes that start at once used to wait for each other until they gave up."""
        another = SqlJobStore(servers.postgres(), schema=schema, timeout=2)
        try:
            async with admin.begin() as connection:
                await store.database.dialect.begin_layout(connection)
                await another.open()
        finally:
            await another.close()

    async def test_a_row_that_stays_locked_is_unknown_in_the_end_and_unchanged(
        self, store: SqlJobStore, schema: str, admin: AsyncEngine
    ) -> None:
        await store.write([DocumentChange(job(), None)])
        hasty = SqlJobStore(servers.postgres(), schema=schema, timeout=0.5)
        async with admin.connect() as other:
            quoted = other.dialect.identifier_preparer.quote_identifier(schema)
            await other.execute(text(f"SELECT 1 FROM {quoted}.jobs FOR UPDATE"))  # noqa: S608 - a name of ours
            (result,) = await hasty.write([DocumentChange(job(priority=1), Version(1, 1))])
        assert isinstance(result, Unknown)
        assert (await hasty.get(["job-1"]))["job-1"].document == job()
        (result,) = await hasty.write([DocumentChange(job(priority=2), Version(1, 1))])
        assert isinstance(result, Written)
        await hasty.close()

    @pytest.mark.parametrize("asked", [ask, ask_directly])
    async def test_cut_connections_are_made_anew(self, store: SqlJobStore, admin: AsyncEngine, asked: Any) -> None:
        await store.write([DocumentChange(job(), None)])
        (pid,) = await asked(store, "SELECT pg_backend_pid()")
        async with admin.begin() as other:
            await other.execute(text(f"SELECT pg_terminate_backend({pid}, 10000)"))
        (result,) = await store.write([DocumentChange(job(priority=1), Version(1, 1))])
        with suppress(Transient):
            await store.get(["job-1"])
        version = (await store.get(["job-1"]))["job-1"].version
        assert isinstance(result, Unknown) or version == Version(2, 1)
        (result,) = await store.write([DocumentChange(job(priority=2), version)])
        assert isinstance(result, Written)

    async def test_jobs_of_a_scatter_are_stored_like_any_others(self, store: SqlJobStore) -> None:
        """They are sent in another way, with what they have in common sent once; one that differs changes the way, not what is stored."""
        alike = [
            job(f"job-{at}", index=at, parameters={"n": at}, flow_ref=FlowRef("c", "w@1", "f", 0, at, 9))
            for at in range(9)
        ]
        odd = [job(f"odd-{at}", index=at, owner="ann" if at else "bob", expected_runtime=at or None) for at in range(3)]
        for some in (alike, odd):
            results = await store.write([DocumentChange(document, None) for document in some])
            assert all(isinstance(result, Written) for result in results)
            stored_jobs = await store.get([document.id for document in some])
            assert [stored_jobs[document.id].document for document in some] == some
        page = await store.search(JobQuery(anyof={"run": ["c"]}, at_least={"index": 3}), sort="-index")
        assert [stored.document.index for stored in page.jobs] == [8, 7, 6, 5, 4, 3]
        results = await store.write([DocumentChange(document, None) for document in (alike[0], job("new", index=0))])
        assert [isinstance(result, Written) for result in results] == [False, True]
        raised = [replace(document, priority=7) for document in alike]
        await store.write([DocumentChange(raised[4], Version(1, 1))])
        results = await store.write([DocumentChange(document, Version(1, 1)) for document in reversed(raised)])
        assert [isinstance(result, Written) for result in results] == [
            document is not raised[4] for document in reversed(raised)
        ]
        stored_jobs = await store.get([document.id for document in raised])
        assert [stored_jobs[document.id] for document in raised] == [
            Stored(document, Version(2, 1)) for document in raised
        ]

    async def test_a_statement_that_fails_or_is_late_costs_at_most_its_connection(self, schema: str) -> None:
        store = SqlJobStore(servers.postgres(), schema=schema, connections=2, timeout=5)
        await store.open()
        (pid,) = await ask_directly(store, "SELECT pg_backend_pid()")
        with pytest.raises(asyncpg.PostgresError):
            await ask_directly(store, "SELECT 1 / 0")
        (pid,) = await ask_directly(store, "SELECT pg_backend_pid()")
        with pytest.raises(TimeoutError):
            await ask_directly(store, "SELECT pg_sleep(60)")
        assert await ask_directly(store, "SELECT pg_backend_pid()") != [pid]
        await store.close()

    async def test_more_calls_at_once_than_connections(self, schema: str) -> None:
        store = SqlJobStore(servers.postgres(), schema=schema, connections=2)
        await store.open()
        results = await asyncio.gather(*(store.write([DocumentChange(job(str(number)), None)]) for number in range(50)))
        assert all(isinstance(result, Written) for (result,) in results)
        await store.close()

    async def test_a_window_of_candidates_is_one_run_of_its_index(self, store: SqlJobStore) -> None:
        """Also when the server plans once for all values: the condition of a partial index must be in the statement."""
        for cursor in (await _cursor(store), None):
            statement, values = await sent_for(store, cursor)
            async with store.database.dialect.reader.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                await driver.execute(f"PREPARE wanted AS {statement}")
                await driver.execute("SET plan_cache_mode = force_generic_plan")
                lines = await driver.fetch(f"EXPLAIN EXECUTE wanted ({', '.join(['NULL'] * len(values))})")
                await driver.execute("DEALLOCATE wanted; RESET plan_cache_mode")
                returned_text = "\n".join(line[0] for line in lines)
            assert "Index Scan using jobs_queue" in returned_text
            assert "Sort" not in returned_text

    async def test_an_unknown_user_is_refused_for_good(self) -> None:
        url = make_url(servers.postgres()).set(username="nobody_here")
        store = SqlJobStore(url.render_as_string(hide_password=False))
        with pytest.raises(Permanent):
            await store.open()
        await store.close()
