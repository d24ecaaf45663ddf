"""Servers for tests: two on one store, shared by all tests of a run; each test has a tenant of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.store_room import KINDS, store_room

__all__ = ["domain", "local", "other", "own_domain", "server", "store_kind", "tenant"]


@pytest.fixture(scope="session", params=KINDS)
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture(scope="session")
async def domain(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Domain]:
    """A domain on each kind of store."""
    state = tmp_path_factory.mktemp("domain")
    async with store_room(store_kind, state) as url:
        yield Domain(url, state, {"callback_hosts": ("127.0.0.1",)})


@pytest.fixture(scope="module")
async def own_domain(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Domain]:
    """A domain in which only those servers run that a test starts."""
    state = tmp_path_factory.mktemp("own-domain")
    async with store_room(store_kind, state) as url:
        yield Domain(url, state)


@pytest.fixture(scope="session")
async def server(domain: Domain) -> AsyncIterator[RunningServer]:
    async with domain.server() as running:
        yield running


@pytest.fixture(scope="module")
async def other(domain: Domain, server: RunningServer) -> AsyncIterator[RunningServer]:
    """A second server of the same domain."""
    async with domain.server() as running:
        yield running


@pytest.fixture(scope="session")
async def local(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """One server on SQLite alone, for what does not depend on the store."""
    state = tmp_path_factory.mktemp("local")
    async with store_room("sqlite", state) as url, Domain(url, state).server() as running:
        yield running


@pytest.fixture
def tenant() -> str:
    """A tenant that no other test uses."""
    return f"t-{uuid4().hex[:10]}"
