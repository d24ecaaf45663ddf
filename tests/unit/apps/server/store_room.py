"""A store of a test's own, by its URL: a new SQLite file, PostgreSQL database, or set of OpenSearch indexes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from tests import servers
from tests.unit.apps.server.http_client import http_client

KINDS = (
    pytest.param("sqlite"),
    pytest.param("postgresql", marks=pytest.mark.live),
    pytest.param("opensearch", marks=pytest.mark.live),
)
"""Every store that a walk is taken on; the two that need a server are marked."""
far = pytest.mark.parametrize("store_kind", KINDS[1:], indirect=True, scope="session")
"""For a test on the stores that are reached over a network."""


def only(kind: str) -> pytest.MarkDecorator:
    """For a test that is too dear to be run on every store."""
    params = [param for param in KINDS if param.values == (kind,)]
    return pytest.mark.parametrize("store_kind", params, indirect=True, scope="session")


@asynccontextmanager
async def store_room(kind: str, folder: Path) -> AsyncIterator[str]:
    """The URL of a store that nobody else uses; cleared away at the end."""
    name = f"fs_{uuid4().hex[:12]}"
    if kind == "sqlite":
        yield f"sqlite:///{folder / name}.db"
    elif kind == "postgresql":
        async with _database(name) as url:
            yield url
    else:
        hosts = servers.opensearch()
        prefix = name.replace("_", "-")
        try:
            yield f"opensearch://{','.join(urlsplit(host).netloc for host in hosts)}/{prefix}?timeout=30"
        finally:
            await _remove_indexes(hosts[0], prefix)


@asynccontextmanager
async def _database(name: str) -> AsyncIterator[str]:
    url = make_url(servers.postgres())
    engine = create_async_engine(url.set(drivername="postgresql+asyncpg"), isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as connection:
            await connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0"))
        yield url.set(database=name).render_as_string(hide_password=False)
        async with engine.connect() as connection:
            await connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        await engine.dispose()


async def _remove_indexes(host: str, prefix: str) -> None:
    async with http_client(host) as client:
        response = await client.get(f"/_cat/indices/{prefix}-*", params={"format": "json", "h": "index"})
        for entry in response.json():
            (await client.delete(f"/{entry['index']}")).raise_for_status()
