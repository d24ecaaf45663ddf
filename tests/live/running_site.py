"""A small Forestay of real processes on the real store: servers, a reconciler, pilots."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests import servers
from tests.speed import typical
from tests.system.chaos.processes import Child, free_port

from forestay.adapters.private_file import write_private
from forestay.apps.config.settings import load
from forestay.apps.operations.tokens import make_token

LEASE = max(2, math.ceil(2 * typical(20)))
"""Seconds: two where processes get a processor when they want one, and longer where they wait for it."""
PATIENCE = LEASE + 10.0
"""Seconds of silence after which a pilot with this lease is given up: the lease and ten seconds."""


async def until(condition: Callable[[], Awaitable[Any]], what: str, patience: float = 180.0) -> Any:
    """Wait for a condition to hold and give its value; fail loudly when it never does."""
    give_up = time.monotonic() + patience
    while not (value := await condition()):
        assert time.monotonic() < give_up, f"waited {patience:.0f} s in vain for {what}"
        await asyncio.sleep(0.05)
    return value


@dataclass
class RunningSite:
    """The processes, and how to speak to them."""

    folder: Path
    prefix: str
    children: list[Child] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    def _environment(self, **more: str) -> dict[str, str]:
        hosts = ",".join(url.removeprefix("http://") for url in servers.opensearch())
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        return kept | {
            "FORESTAY_STORE": f"opensearch://{hosts}/{self.prefix}?timeout=20",
            "FORESTAY_STATE": str(self.folder),
            "FORESTAY_LEASE": str(LEASE),
        } | more  # fmt: skip

    def _start(self, what: str, name: str, words: list[str], environment: dict[str, str]) -> Child:
        child = Child(what, name, lambda _who: words, environment, self.folder)
        child.start()
        self.children.append(child)
        return child

    async def start_server(self) -> Child:
        port = free_port()
        environment = self._environment(FORESTAY_PORT=str(port))
        child = self._start("server", f"server-{port}", [_forestay(), "server"], environment)
        self.urls.append(f"http://127.0.0.1:{port}")
        await until(lambda: self.answers(self.urls[-1]), "the server")
        return child

    async def answers(self, url: str) -> bool:
        try:
            async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
                return (await client.get(f"{url}/v1/status")).status_code == 401
        except httpx.HTTPError:
            return False

    def start_reconciler(self) -> Child:
        return self._start("reconciler", "reconciler", [_forestay(), "reconciler"], self._environment())

    def start_pilot(self, tenant: str, name: str, *more: str, slots: int = 1) -> Child:
        token = self.folder / f"enrol-{tenant}"
        if not token.exists():
            write_private(token, self.token("enrol", tenant=tenant))
        words = [
            sys.executable, "-m", "forestay_pilot",
            *(word for url in self.urls for word in ("--server", url)),
            "--token-file", str(token), "--host", name,
            "--outputs", str(self.folder / "outputs"), "--work", str(self.folder / "work" / name),
            "--slots", str(slots), "--cpus", str(slots), "--memory", str(1 << 30), "--disk", str(1 << 30),
            *more,
        ]  # fmt: skip
        return self._start("pilot", name, words, self._environment())

    def token(self, *roles: str, tenant: str) -> str:
        settings = load(self._environment())
        return make_token(settings, subject="ada", tenant=tenant, roles=roles, seconds=3600)

    def person(self, tenant: str, server: int = 0) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token('submitter', tenant=tenant)}"}
        client = httpx.AsyncClient(base_url=self.urls[server], headers=headers, timeout=30, trust_env=False)
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            await client.aclose()
        for what in ("pilot", "reconciler", "server"):
            for child in (other_child for other_child in self.children if other_child.what == what):
                child.send(signal.SIGCONT)
                child.send(signal.SIGKILL)
                if child.process is not None:
                    child.process.wait()


def _forestay() -> str:
    return str(Path(sys.executable).with_name("forestay"))


async def submit(client: httpx.AsyncClient, script: str, count: int = 1, **job: Any) -> list[str]:
    """Submit jobs that run a shell script and leave `out.txt`."""
    body = {
        "specification": {"name": "recovery", "command": ["sh", "-c", script], "outputs": ["out.txt"]},
        "jobs": [job] * count,
    }
    answer = await client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return [other_job["id"] for other_job in answer.json()["jobs"]]


async def read(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def story(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job}/story")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def until_state(client: httpx.AsyncClient, job: str, state: str, patience: float = 180.0) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        document = await read(client, job)
        return document if document["state"] == state else None

    document: dict[str, Any] = await until(there, f"{job} to be {state}", patience)
    return document
