"""Everything that runs runs, as processes of their own: PostgreSQL, Temporal, server, orchestrator, reconciler. What each costs is added up over its lives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import asyncpg  # type: ignore[import-untyped]
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError
from tests.system.chaos.processes import free_port, launch

from bench.harness import TICKS
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token

TENANT = "bench"
SCRIPT = Path(__file__).parent.parent / "scripts" / "servers"


def family(pid: int) -> list[int]:
    """A process and everything it started that still runs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    result, wanted = [], [pid]
    while wanted:
        child = wanted.pop()
        result.append(child)
        wanted += parents.get(child, [])
    return result


def cpu_of(pid: int) -> float:
    """CPU-seconds of a process, of what it started, and of what has ended of that."""
    total = 0.0
    for member in family(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(fields[place]) for place in (11, 12, 13, 14)) / TICKS
    return total


def peak_of(pid: int) -> int:
    """The most memory a process ever had, in bytes."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass(slots=True)
class Place:
    """A process of Forestay's, started again when it was killed."""

    name: str
    words: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    spent: float = 0.0
    peak: int = 0

    def start(self) -> None:
        self.process = launch([sys.executable, "-m", "forestay", *self.words], self.log, environment=self.environment)

    @property
    def cpu(self) -> float:
        alive = self.process is not None and self.process.poll() is None
        return self.spent + (cpu_of(self.process.pid) if alive and self.process else 0.0)

    def look(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.peak = max(self.peak, peak_of(self.process.pid))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.look()
        self.spent = self.cpu
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(slots=True)
class WholeSite:
    """What runs, and how to reach it."""

    folder: Path
    store: str
    temporal: str
    namespace: str
    session: aiohttp.ClientSession
    servers: dict[str, int] = field(default_factory=dict)
    """The process of each server that is ours alone: PostgreSQL, Temporal."""
    places: list[Place] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    _tokens: dict[tuple[str, ...], str] = field(default_factory=dict)

    def token(self, *roles: str) -> str:
        if roles not in self._tokens:
            settings = Settings(state=self.folder)
            made = make_token(settings, subject="bench", tenant=TENANT, roles=list(roles), seconds=86_400)
            self._tokens[roles] = made
        return self._tokens[roles]

    async def start(
        self, *, servers: int = 1, orchestrators: int = 1, reconcilers: int = 1, **settings: object
    ) -> None:
        known = {"store": self.store, "state": self.folder, "temporal": self.temporal} | settings
        known |= {"temporal_namespace": self.namespace}
        environment = os.environ | {f"FORESTAY_{name.upper()}": str(value) for name, value in known.items()}
        environment.pop(
            "PYTHONDONTWRITEBYTECODE", None
        )  # an installation has its bytecode: a start must not cost its making
        self.token("viewer")  # makes the signing key before several processes would
        for number in range(servers):
            port = free_port()
            self.urls.append(f"http://127.0.0.1:{port}")
            self._place(f"server {number}", ["server", "--port", str(port)], environment)
        for number in range(orchestrators):
            self._place(f"orchestrator {number}", ["orchestrator"], environment)
        for number in range(reconcilers):
            self._place(f"reconciler {number}", ["reconciler"], environment)
        self.launch()
        await self.answers()

    def _place(self, name: str, words: list[str], environment: dict[str, str]) -> None:
        self.places.append(Place(name, words, environment, self.folder / f"{name.replace(' ', '-')}.log"))

    def launch(self) -> None:
        for place in self.places:
            place.start()

    def kill_all(self) -> None:
        """kill -9 of every Forestay process at once."""
        for place in self.places:
            place.look()
            place.spent = place.cpu
        for place in self.places:
            assert place.process is not None
            place.process.kill()
        for place in self.places:
            assert place.process is not None
            place.process.wait()

    async def answers(self, patience: float = 300.0) -> None:
        """Until every server answers."""
        for url in self.urls:
            await self.get("/v1/status", "viewer", url=url, patience=patience)

    async def get(self, path: str, role: str, *, url: str = "", patience: float = 60.0) -> Any:
        headers = {"Authorization": f"Bearer {self.token(role)}"}
        give_up = time.monotonic() + patience
        text = "no answer"
        while time.monotonic() < give_up:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self.session.get(f"{url or self.urls[0]}{path}", headers=headers) as answer:
                    if answer.status == 200:
                        return await answer.json()
                    text = await answer.text()
            await asyncio.sleep(0.05)
        raise SystemExit(f"{path}: {text}; see {self.folder}")

    async def post(self, path: str, body: object, role: str = "submitter") -> Any:
        headers = {"Authorization": f"Bearer {self.token(role)}"}
        async with self.session.post(f"{self.urls[0]}{path}", json=body, headers=headers) as answer:
            if answer.status >= 300:
                raise SystemExit(f"{path}: {answer.status} {await answer.text()}")
            return await answer.json()

    async def start_run(self, flow: str) -> str:
        stored = await self.post("/v1/flows", {"text": flow})
        started = await self.post("/v1/runs", {"flow": stored["version"]})
        return str(started["id"])

    def cpu(self) -> dict[str, float]:
        """CPU-seconds so far, by process."""
        out = {place.name: place.cpu for place in self.places}
        return out | {name: cpu_of(pid) for name, pid in self.servers.items()}

    def peaks(self) -> dict[str, int]:
        for place in self.places:
            place.look()
        return {place.name: place.peak for place in self.places}


def _current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="forestay-bench-"))
    folder.chmod(0o755)  # the servers run as another user
    return folder


def _script(folder: Path, *words: str) -> str:
    environment = os.environ | {"FORESTAY_SERVERS_DIR": str(folder)}
    return subprocess.run([SCRIPT, *words], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


async def new_namespace(address: str) -> str:
    name = f"bench-{uuid4().hex[:8]}"
    client = await Client.connect(address)
    keep = Duration()
    keep.FromTimedelta(timedelta(days=1))
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=keep)
    await client.workflow_service.register_namespace(request)
    for _ in range(200):
        try:
            await (await Client.connect(address, namespace=name)).count_workflows()
        except RPCError:
            await asyncio.sleep(0.1)
        else:
            return name
    raise SystemExit("the namespace did not come to be")


@asynccontextmanager
async def whole_site(*, own: bool, store: str = "postgres", memory: bool = False) -> AsyncIterator[WholeSite]:
    """A site with nothing running on it yet. Its own PostgreSQL and Temporal, or a database and a namespace of those in the environment."""
    # Asked to end, it cleans up as after an error: nothing that it started outlives it.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _current().cancel)
    folder = _new_folder()
    servers: dict[str, int] = {}
    stack = AsyncExitStack()
    try:
        if own:
            _script(
                folder / "servers", "start", "temporal", "--port", str(free_port()), *(["--memory"] if memory else [])
            )
            servers["temporal"] = int(_script(folder / "servers", "pid", "temporal"))
            temporal = (folder / "servers/temporal/port").read_text().strip()
            temporal = f"127.0.0.1:{temporal}"
        else:
            temporal = os.environ["FORESTAY_TEST_TEMPORAL"]
        if store == "postgres" and own:
            _script(folder / "servers", "start", "postgres", "--port", str(free_port()))
            servers["postgres"] = int(_script(folder / "servers", "pid", "postgres"))
            port = (folder / "servers/postgres/port").read_text().strip()
            url = f"postgresql://forestay@127.0.0.1:{port}/forestay"
        elif store == "postgres":
            url = await stack.enter_async_context(new_database())
        elif store == "opensearch":
            place = os.environ["FORESTAY_TEST_OPENSEARCH"].removeprefix("http://")
            url = f"opensearch://{place}/bench-{uuid4().hex[:8]}?timeout=60"
        else:
            url = f"sqlite:///{folder}/jobs.db"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            site = WholeSite(folder, url, temporal, await new_namespace(temporal), session, servers)
            try:
                yield site
            finally:
                for other_place in site.places:
                    other_place.stop()
    finally:
        if own:
            _script(folder / "servers", "stop")
        await stack.aclose()
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def new_database() -> AsyncIterator[str]:
    """A database of its own on the PostgreSQL of the environment, for as long as the block."""
    name = f"bench_{uuid4().hex[:8]}"
    await _sql(f"CREATE DATABASE {name}")
    try:
        yield os.environ["FORESTAY_TEST_POSTGRES"].rpartition("/")[0] + f"/{name}"
    finally:
        await _sql(f"DROP DATABASE {name} WITH (FORCE)")


async def _sql(statement: str) -> None:
    connection = await asyncpg.connect(os.environ["FORESTAY_TEST_POSTGRES"])
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
