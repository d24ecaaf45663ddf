"""Real servers in the test's own process: uvicorn on a free port, over a real store."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.routes import as_described

from forestay.apps.compose.components import make_components
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.apps.compose.server import ServerComponents
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token
from forestay.apps.server.app import HttpServer, make_app, server_config
from forestay.apps.uvicorn_signals import UvicornWithoutSignals

PATIENCE = 180.0


async def until(condition: Callable[[], Awaitable[Any]], what: str, patience: float = PATIENCE) -> Any:
    """Wait for a condition to hold and give its value; fail loudly when it never does."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        value = await condition()
        if value:
            return value
        assert asyncio.get_running_loop().time() < end, f"waited {patience} s in vain for {what}"
        await asyncio.sleep(0.02)


class _QuietServer(UvicornWithoutSignals, HttpServer):
    """The real server, but the signals stay the test run's own, and a start that fails ends one test only."""

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        except SystemExit as error:  # would end the event loop that all tests of this process share
            raise RuntimeError("the server did not start") from error


@dataclass(eq=False)
class RunningServer:
    """One server, and how to speak to it."""

    domain: Domain
    services: ServerComponents
    url: str
    app: Any
    _uvicorn: uvicorn.Server
    _task: asyncio.Task[None]
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    @cached_property
    def hooks(self) -> dict[str, list[Any]]:
        return as_described(self.app)

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """A client with that token, closed when the server stops."""
        client = http_client(self.url, token, event_hooks=self.hooks)
        self._clients.append(client)
        return client

    def person(self, *roles: str, tenant: str, subject: str = "ada") -> httpx.AsyncClient:
        return self.client(self.domain.token(*roles, tenant=tenant, subject=subject))

    @property
    def connections(self) -> int:
        """How many clients are connected, as the server sees it."""
        return len(self._uvicorn.server_state.connections)

    async def refresh(self) -> None:
        """Make everything written so far visible to searches."""
        await self.services.components.store.refresh()

    async def stop(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._uvicorn.should_exit = True
        await self._task


@dataclass(eq=False)
class Domain:
    """One store and its signing key, and whatever runs on it."""

    store: str
    state: Path
    defaults: dict[str, Any] = field(default_factory=dict)

    def settings(self, **changes: Any) -> Settings:
        known: dict[str, Any] = {"store": self.store, "state": self.state, "lease": 60, "approvals": "off"}
        return Settings.model_validate(known | self.defaults | changes)

    def token(self, *roles: str, tenant: str, subject: str = "ada", seconds: int = 3600) -> str:
        return make_token(self.settings(), subject=subject, tenant=tenant, roles=roles, seconds=seconds)

    @asynccontextmanager
    async def server(self, **changes: Any) -> AsyncIterator[RunningServer]:
        """Start a server; stop it at the end."""
        # By its protocol's name, as uvicorn itself makes it: only then are small answers sent at once.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            settings = self.settings(port=listener.getsockname()[1], **changes)
            services = ServerComponents(make_components(settings))
            # Tests have few pilots, often at one of the servers only: they need not leave the others' jobs to them for long.
            eager = replace(services.claims.settings, foreign_after=0.3, foreign_age=0.5, hand_over=1.0)
            services.claims.settings = services.claims.buffers.settings = eager
            app = make_app(services)
            server = _QuietServer(server_config(app, settings))
            task = asyncio.create_task(server.serve(sockets=[listener]))

            async def started() -> bool:
                if task.done():
                    task.result()
                return server.started

            await until(started, "the server's start")
            running = RunningServer(self, services, settings.public_url, app, server, task)
            try:
                yield running
            finally:
                await running.stop()

    @asynccontextmanager
    async def reconciler(self, **changes: Any) -> AsyncIterator[ReconcilerComponents]:
        """A reconciler's services, whose loops the test turns by hand."""
        parts = make_components(self.settings(**changes))
        await parts.store.open()
        try:
            yield ReconcilerComponents(parts)
        finally:
            await parts.store.close()
