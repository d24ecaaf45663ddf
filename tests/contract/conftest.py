"""The adapters that are put to the contract, and the rooms they are tested in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from tests import servers
from tests.contract.examples import many_jobs
from tests.contract.room import Room, Stores

from forestay.adapters.opensearch.audit import OpenSearchAuditStore
from forestay.adapters.opensearch.document_store import OpenSearchDocumentStore
from forestay.adapters.opensearch.incident_store import OpenSearchIncidentStore
from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.adapters.opensearch.pilot_store import OpenSearchPilotStore
from forestay.adapters.sql.audit import SqlAuditStore
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.sql.pilot_store import SqlPilotStore
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Written

CLOSED_PORT = 9
"""The old discard service: nothing listens there."""


def _sql(url: str, schema: str | None = None) -> Stores:
    jobs = SqlJobStore(url, schema=schema)
    database = jobs.database
    return Stores(
        jobs, SqlPilotStore(database), SqlDocumentStore(database), SqlIncidentStore(database), SqlAuditStore(database)
    )


class SqliteRoom:
    """A new file."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="forestay-")

    def stores(self) -> Stores:
        return _sql(f"sqlite:///{Path(self._folder.name) / 'jobs.db'}")

    def unreachable(self) -> Stores:
        return _sql(f"sqlite:///{Path(self._folder.name) / 'missing' / 'jobs.db'}")

    async def clear(self) -> None:
        self._folder.cleanup()


class PostgresRoom:
    """A new schema."""

    def __init__(self) -> None:
        self._url = make_url(servers.postgres())
        self._schema = f"contract_{uuid4().hex}"

    def stores(self) -> Stores:
        return _sql(self._url.render_as_string(hide_password=False), self._schema)

    def unreachable(self) -> Stores:
        return _sql(self._url.set(port=CLOSED_PORT).render_as_string(hide_password=False), self._schema)

    async def clear(self) -> None:
        engine = create_async_engine(self._url.set(drivername="postgresql+asyncpg"))
        async with engine.begin() as connection:
            await connection.execute(text(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE"))
        await engine.dispose()


class OpenSearchRoom:
    """Indexes without documents: those of an earlier test, emptied, because new ones cost two seconds."""

    empty_prefixes: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._hosts = servers.opensearch()
        self._prefix = self.empty_prefixes.pop() if self.empty_prefixes else f"contract-{uuid4().hex}"

    def stores(self) -> Stores:
        return self._at(self._hosts, timeout=30)

    def unreachable(self) -> Stores:
        return self._at((f"http://127.0.0.1:{CLOSED_PORT}",), timeout=1)

    def _at(self, hosts: tuple[str, ...], timeout: float) -> Stores:
        jobs = OpenSearchJobStore(hosts, prefix=self._prefix, timeout=timeout)
        cluster = jobs.cluster
        return Stores(
            jobs,
            OpenSearchPilotStore(cluster),
            OpenSearchDocumentStore(cluster),
            OpenSearchIncidentStore(cluster),
            OpenSearchAuditStore(cluster),
        )

    async def clear(self) -> None:
        async with httpx.AsyncClient(base_url=self._hosts[0], timeout=60) as client:
            # Refreshed before too: only what a search finds is deleted.
            (await client.post(f"/{self._prefix}-*/_refresh")).raise_for_status()
            deleted = await client.post(
                f"/{self._prefix}-*/_delete_by_query",
                params={"refresh": "true", "conflicts": "proceed"},
                json={"query": {"match_all": {}}},
            )
            deleted.raise_for_status()
        self.empty_prefixes.append(self._prefix)


@pytest.fixture(scope="session", autouse=True)
def delete_indexes() -> Iterator[None]:
    """Delete the indexes of this process's rooms once no test needs them."""
    yield
    for prefix in OpenSearchRoom.empty_prefixes:
        with httpx.Client(base_url=servers.opensearch()[0], timeout=60) as client:
            names = client.get(f"/_cat/indices/{prefix}-*", params={"h": "index"}).raise_for_status().text.split()
            for name in names:
                client.delete(f"/{name}").raise_for_status()


ROOMS: dict[str, Callable[[], Room]] = {"sqlite": SqliteRoom, "postgres": PostgresRoom, "opensearch": OpenSearchRoom}


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.live),
        pytest.param("opensearch", marks=pytest.mark.live),
    ],
)
def adapter(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@asynccontextmanager
async def _rented(adapter: str) -> AsyncIterator[Room]:
    room = ROOMS[adapter]()
    try:
        yield room
    finally:
        await room.clear()


@pytest_asyncio.fixture
async def room(adapter: str) -> AsyncIterator[Room]:
    """A new room for this test."""
    async with _rented(adapter) as room:
        yield room


@pytest_asyncio.fixture
async def another(room: Room) -> AsyncIterator[Callable[[], Awaitable[Stores]]]:
    """Opens one more instance over the same data."""
    opened: list[Stores] = []

    async def open_one() -> Stores:
        stores = room.stores()
        opened.append(stores)
        await stores.jobs.open()
        return stores

    yield open_one
    for stores in opened:
        await stores.jobs.close()


@pytest_asyncio.fixture
async def stores(another: Callable[[], Awaitable[Stores]]) -> Stores:
    """Both stores, empty."""
    return await another()


@pytest_asyncio.fixture
async def unreachable(room: Room) -> AsyncIterator[Stores]:
    """Both stores, out of reach."""
    stores = room.unreachable()
    yield stores
    await stores.jobs.close()


@pytest_asyncio.fixture(scope="module")
async def filled(adapter: str) -> AsyncIterator[tuple[JobStore, dict[str, JobDocument]]]:
    """A store with many different jobs, for tests that only read, and the jobs that are in it."""
    async with _rented(adapter) as room:
        store = room.stores().jobs
        await store.open()
        try:
            jobs = many_jobs()
            results = await store.write([DocumentChange(job, None) for job in jobs])
            assert all(isinstance(result, Written) for result in results)
            await store.refresh()
            yield store, {job.id: job for job in jobs}
        finally:
            await store.close()
