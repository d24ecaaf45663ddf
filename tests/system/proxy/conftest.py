"""Two domains: one that is the proxy, and one that is the task server behind it and knows nothing of the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import tes
from tests.system.proxy.road import Road, open_road
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private
from forestay.apps.compose.loops import run_loops, stop
from forestay.services.insertion.task_proxy import TaskProxy

TENANT = "outer"
INNER = "inner"
NAME = "inner"


@dataclass(eq=False)
class TaskServer:
    """A domain of its own as the task server: its store, server, reconciler and pilot are processes."""

    running: Processes
    server: Started
    port: int
    token_file: Path
    settings: dict[str, Any]

    def client(self) -> tes.HTTPClient:
        return tes.HTTPClient(self.server.url, timeout=10, token=self.running.domain.token("submitter", tenant=INNER))

    async def back(self) -> None:
        """Start the server again where it was."""
        self.server = await self.running.server(port=self.port)


@dataclass(eq=False)
class Proxy:
    """The domain between, and how to speak to it."""

    server: RunningServer
    road: Road
    hints: list[str] = field(default_factory=list)
    """Tasks of which the task server said by itself that they are over."""

    @property
    def relay(self) -> TaskProxy:
        return self.server.services.relays.relays[0]

    def client(self) -> tes.HTTPClient:
        return tes.HTTPClient(self.server.url, timeout=10, token=self.server.domain.token("submitter", tenant=TENANT))


@pytest.fixture(scope="module")
async def inner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TaskServer]:
    folder = tmp_path_factory.mktemp("inner")
    settings = {"tes_containers": "host-paths", "free_tries": "", "callback_hosts": "127.0.0.1"}
    async with (
        store_room("sqlite", folder) as store,
        processes(Domain(store, folder), folder, lease=60, **settings) as running,
    ):
        server = await running.server()
        running.reconciler()
        running.pilot(INNER, server, slots=2)
        token = folder / "token"
        write_private(token, running.domain.token("submitter", tenant=INNER, subject="proxy"))
        yield TaskServer(running, server, int(server.url.rpartition(":")[2]), token, settings)


@pytest.fixture(scope="module")
async def road(inner: TaskServer) -> AsyncIterator[Road]:
    async with open_road(inner.server.url) as opened:
        yield opened


def downstream(inner: TaskServer, url: str, **more: Any) -> dict[str, Any]:
    return {"name": NAME, "url": url, "token": f"file:{inner.token_file}", "tenants": [TENANT], "default": True} | more


@pytest.fixture(scope="module")
async def outer(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Domain]:
    folder = tmp_path_factory.mktemp("outer")
    async with store_room("sqlite", folder) as store:
        yield Domain(store, folder)


@pytest.fixture(scope="module")
async def proxy(outer: Domain, inner: TaskServer, road: Road) -> AsyncIterator[Proxy]:
    async with (
        outer.server(
            downstreams=[downstream(inner, road.url, callbacks=True)], callback_hosts=("127.0.0.1",)
        ) as server,
        outer.reconciler(callback_hosts=("127.0.0.1",)) as reconciler,
    ):
        loops = asyncio.create_task(run_loops(reconciler.loops()))
        try:
            made = Proxy(server, road)
            hint = made.relay.hint

            def noted(task: str, *, only_of: str = "") -> None:
                made.hints.append(task)
                hint(task, only_of=only_of)

            made.relay.hint = noted  # type: ignore[method-assign]
            yield made
        finally:
            await stop(loops)
