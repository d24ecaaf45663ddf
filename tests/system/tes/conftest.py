"""A real server and a real pilot, each a process of its own, and unmodified clients of TES that know nothing of Forestay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import tes
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.store_room import store_room

BASE = "/ga4gh/tes/v1"


@dataclass(frozen=True)
class Site:
    """What runs, and how to speak to it."""

    running: Processes
    server: Started
    tenant: str

    def token(self, *roles: str, subject: str = "ada", tenant: str = "") -> str:
        return self.running.domain.token(*(roles or ("submitter",)), tenant=tenant or self.tenant, subject=subject)

    def client(self, *roles: str, subject: str = "ada", tenant: str = "") -> tes.HTTPClient:
        return tes.HTTPClient(self.server.url, timeout=30, token=self.token(*roles, subject=subject, tenant=tenant))

    def plain(self, *roles: str, subject: str = "ada", tenant: str = "") -> httpx.Client:
        token = self.token(*roles, subject=subject, tenant=tenant)
        return httpx.Client(base_url=self.server.url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    state = tmp_path_factory.mktemp("tes")
    async with (
        store_room("sqlite", state) as url,
        processes(
            Domain(url, state), state, lease=60, staging_hosts="127.0.0.1", free_tries="", tes_containers="host-paths"
        ) as running,
    ):
        server = await running.server()
        tenant = f"t-{uuid4().hex[:8]}"
        running.pilot(tenant, server, slots=4)
        yield Site(running, server, tenant)


@pytest.fixture
def client(site: Site) -> tes.HTTPClient:
    return site.client()


@pytest.fixture
def plain(site: Site) -> Iterator[httpx.Client]:
    with site.plain() as connected:
        yield connected


def shell(text: str, **more: Any) -> tes.Executor:
    return tes.Executor(image="alpine", command=["/bin/sh", "-c", text], **more)


def ended(client: tes.HTTPClient, task: tes.Task, *, seconds: int = 60) -> tes.Task:
    """Make a task and wait as its clients do; in full."""
    name = client.create_task(task)
    client.wait(name, timeout=seconds)
    return client.get_task(name, "FULL")


def file_url(path: Path) -> str:
    return f"file://{path}"
