"""A real server and a real pilot, each a process of its own, for programs that use the executor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.store_room import store_room

from forestay.client import Executor, ForestayClient

SLOTS = 2


@dataclass(frozen=True)
class Site:
    """What runs, and how to speak to it."""

    running: Processes
    server: Started
    pilot: Started
    tenant: str

    def client(self) -> ForestayClient:
        token = self.running.domain.token("submitter", tenant=self.tenant)
        return ForestayClient(self.server.url, token)


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    state = tmp_path_factory.mktemp("site")
    async with (
        store_room("sqlite", state) as url,
        processes(
            Domain(url, state), state, lease=60, callback_hosts="127.0.0.1", staging_hosts="127.0.0.1", free_tries=""
        ) as running,
    ):
        server = await running.server()
        running.reconciler()
        tenant = f"t-{uuid4().hex[:8]}"
        yield Site(running, server, running.pilot(tenant, server, slots=SLOTS), tenant)


@pytest.fixture
def client(site: Site) -> Iterator[ForestayClient]:
    with site.client() as connected:
        yield connected


@pytest.fixture
def pool(client: ForestayClient) -> Iterator[Executor]:
    with Executor(client) as executor:
        yield executor


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Files that functions wait for; all are there after the test."""
    made: list[Path] = []

    def new() -> Path:
        made.append(tmp_path / f"gate-{len(made)}")
        return made[-1]

    yield new
    for path in made:
        path.touch()
