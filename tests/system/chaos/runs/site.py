"""Where runs are hurt: a store, and Temporal, a server, a reconciler and an orchestrator as processes that are started again when they die."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from temporalio.client import Client
from tests.servers import SCRIPT
from tests.system.chaos.processes import Child, free_port
from tests.system.chaos.runs.flows import GROWN
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.store_room import store_room

from forestay.apps.config.settings import load
from forestay.apps.operations.tokens import make_token

TENANT = "chaos"
ROLES = ("server", "reconciler", "orchestrator")
LEASE = 3
DAY = 86_400
ROOT = SCRIPT.parent.parent


def _open_folder() -> Path:
    """For Temporal, which may run as another user."""
    folder = Path(tempfile.mkdtemp(prefix="forestay-temporal-"))
    folder.chmod(0o755)
    return folder


@dataclass(eq=False)
class RunsSite:
    """What runs, and how to reach it."""

    folder: Path
    store: str
    server_port: int = field(default_factory=free_port)
    temporal_port: int = field(default_factory=free_port)
    children: dict[str, Child] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    """Processes that ended although no order said so."""
    temporal_lives: int = 0
    servers: Path = field(default_factory=_open_folder)
    _client: Client | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def temporal(self) -> str:
        return f"127.0.0.1:{self.temporal_port}"

    @property
    def points(self) -> Path:
        return self.folder / "points"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        return kept | {
            "FORESTAY_STORE": self.store,
            "FORESTAY_STATE": str(self.folder / "state"),
            "FORESTAY_FLOWS": str(self.folder / "flows"),
            "FORESTAY_PORT": str(self.server_port),
            "FORESTAY_LEASE": str(LEASE),
            "FORESTAY_TEMPORAL": self.temporal,
            "FORESTAY_RELAY_EVERY": "0.1",
            "FORESTAY_RELAY_PATIENCE": "0.3",
        }

    def token(self, *roles: str) -> str:
        return make_token(load(self.environment()), subject="ada", tenant=TENANT, roles=roles, seconds=DAY)

    def person(self) -> httpx.AsyncClient:
        return http_client(self.url, self.token("submitter", "viewer"), timeout=20)

    async def start(self) -> None:
        for name in ("state", "points", "logs", "flows"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "flows" / "grown.py").write_text(GROWN)
        self.token("viewer")  # makes the signing key before several processes would
        await self.temporal_order("start", "temporal", "--port", str(self.temporal_port))
        for role in ROLES:
            words = [sys.executable, "-m", "tests.system.chaos.runs.watched_process", str(self.points), role]
            child = Child(role, role, lambda _who, words=words: words, self.environment(), self.folder / "logs")  # type: ignore[misc]
            self.children[role] = child
            child.start()

    async def temporal_order(self, *words: str) -> str:
        """Give ``scripts/servers`` an order about the Temporal that is ours alone."""
        own = os.environ | {"FORESTAY_SERVERS_DIR": str(self.servers)}
        running = await asyncio.create_subprocess_exec(
            SCRIPT, *words, stdout=asyncio.subprocess.PIPE, env=own, start_new_session=True
        )
        try:
            data, _ = await running.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            raise
        if running.returncode:
            raise RuntimeError(f"{SCRIPT.name} {' '.join(words)} ended with {running.returncode}")
        return data.decode().strip()

    async def temporal_pid(self) -> int:
        return int(await self.temporal_order("pid", "temporal"))

    async def client(self) -> Client:
        if self._client is None:
            self._client = await Client.connect(self.temporal)
        return self._client

    async def watch(self) -> None:
        """Start again whatever is gone, at once."""
        pid = await self.temporal_pid()
        while True:
            for child in self.children.values():
                if child.process is not None and not child.up:  # those that are killed live on by themselves
                    self.crashes.append(f"{child.name} ended with {child.process.returncode}")
                    child.start()
            if not _runs(pid):
                self.temporal_lives += 1
                await self.temporal_order("launch", "temporal")
                pid = await self.temporal_pid()
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        for child in self.children.values():
            if child.process is not None and child.up:
                os.killpg(child.process.pid, signal.SIGKILL)
                child.process.wait()
        await self.temporal_order("stop")
        shutil.rmtree(self.servers, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def answering(site: RunsSite, patience: float = 600.0) -> None:
    """Wait until the server answers."""
    give_up = time.monotonic() + patience
    async with site.person() as person:
        while True:
            try:
                if (await person.get("/v1/status")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > give_up:
                raise TimeoutError("the server does not answer; its log is in the folder")
            await asyncio.sleep(0.1)


@asynccontextmanager
async def runs_site(kind: str, folder: Path) -> AsyncIterator[RunsSite]:
    """Everything that a run needs, watched."""
    async with store_room(kind, folder) as store:
        site = RunsSite(folder, store)
        watch: asyncio.Task[None] | None = None
        try:
            await site.start()
            watch = asyncio.create_task(site.watch())
            await answering(site)
            yield site
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
            await site.stop()
