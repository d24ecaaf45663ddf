"""A real site at a small size: a server, a reconciler, pilots of several hosts, and a storage element whose delay and failures are set; each a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.system.chaos.processes import free_port, launch

from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token
from forestay_pilot.process import libc

TENANT = "bench"
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class RealArm:
    """How the server matches, and what pilots keep and share."""

    name: str
    scheme: str | None = None
    """The paper's scheme by which the server matches (`paper_server`); None: our own."""
    pilot: tuple[str, ...] = ()
    """Options of every pilot."""
    cache: bool = True


REAL_ARMS = {
    arm.name: arm
    for arm in (
        RealArm("no cache", cache=False),
        RealArm("C1", "c1"),
        RealArm("C2", "c2", ("--cache-scope", "pilot")),
        RealArm("C3", "c3"),
        RealArm("site cache", "c3", ("--share", "127.0.0.1")),
        RealArm("look-ahead"),
    )
}


@dataclass(frozen=True, slots=True)
class Storage:
    """What the storage element is set to."""

    delay: float = 0.0
    failure: float = 0.0
    spread: float = 0.05
    seed: int = 1


@dataclass(slots=True)
class RealSite:
    """What runs, and how to reach it."""

    folder: Path
    url: str
    storage_url: str
    client: httpx.AsyncClient
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def post(self, path: str, body: object) -> Any:
        answer = await self.client.post(path, json=body)
        if answer.status_code >= 300:
            raise SystemExit(f"{path}: {answer.status_code} {answer.text}")
        return answer.json()

    async def completed(self) -> dict[str, dict[str, Any]]:
        """The jobs that have ended well; one that has ended badly for good ends the run."""
        answer = await self.client.get(
            "/v1/jobs", params={"state": ["completed", "failed", "cancelled"], "limit": 1000}
        )
        answer.raise_for_status()
        jobs = {job["id"]: job for job in answer.json()["jobs"]}
        for job in jobs.values():
            if job["state"] != "completed":
                raise SystemExit(f"job {job['id']} is {job['state']}: {json.dumps(job)[:2000]}")
        return jobs

    async def counts(self) -> dict[str, int]:
        """What the storage element did."""
        async with httpx.AsyncClient(trust_env=False) as client:
            read: dict[str, int] = (await client.get(f"{self.storage_url}/.counts")).json()
            return read

    async def pilots(self) -> int:
        answer = await self.client.get("/v1/pilots")
        answer.raise_for_status()
        return sum(pilot["state"] == "alive" for pilot in answer.json()["pilots"])


@asynccontextmanager
async def real_site(arm: RealArm, storage: Storage, *, hosts: int, slots: int) -> AsyncIterator[RealSite]:
    """Everything up and every pilot registered; all of it ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="forestay-real-"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode
    processes: list[subprocess.Popen[bytes]] = []
    try:
        storage_url = _storage(folder, storage, processes)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        element = {
            "name": "se1",
            "kind": "http",
            "url": storage_url,
            "outputs": "outputs",
            "private": True,
            "sites": ["local"],
        }
        environment = kept | {
            "FORESTAY_STORE": f"sqlite:///{folder}/jobs.db",
            "FORESTAY_STATE": str(folder),
            "FORESTAY_PORT": str(port),
            "FORESTAY_LEASE": "60",
            "FORESTAY_STORAGE": json.dumps([element]),
            "FORESTAY_FREE_TRIES": "0,0,0,0,0,0,0,0",
        }
        settings = Settings(state=folder)
        person = make_token(settings, subject="bench", tenant=TENANT, roles=["submitter", "operator"], seconds=86_400)
        enrol = make_token(settings, subject="bench", tenant=TENANT, roles=["enrol"], seconds=86_400)
        server = ["bench.pilots.paper_server", arm.scheme] if arm.scheme is not None else ["forestay", "server"]
        for what, module in (("server", server), ("reconciler", ["forestay", "reconciler"])):
            words = [sys.executable, "-m", *module]
            processes.append(launch(words, folder / f"{what}.log", environment=environment))
        headers = {"Authorization": f"Bearer {person}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False) as client:
            site = RealSite(folder, url, storage_url, client, processes)
            await _until(site, lambda: _answers(client), "the server")
            for host in range(hosts):
                for slot in range(slots):
                    name = f"h{host}-{slot}"
                    words = [
                        sys.executable, "-m", "forestay_pilot", "--server", url, "--host", f"h{host}", "--slots", "1",
                        "--outputs", str(folder / "own-outputs"), "--work", str(folder / "work" / f"h{host}"),
                        "--cpus", "1", "--memory", str(1 << 28), "--disk", str(1 << 30),
                    ]  # fmt: skip
                    if arm.cache:
                        words += [
                            "--cache",
                            str(folder / "cache" / f"h{host}"),
                            "--cache-space",
                            str(1 << 30),
                            *arm.pilot,
                        ]
                    launched = launch(
                        words, folder / f"pilot-{name}.log", environment=kept | {"FORESTAY_ENROL_TOKEN": enrol}
                    )
                    processes.append(launched)
            await _until(site, lambda: _all_there(site, hosts * slots), "the pilots")
            await asyncio.sleep(1.0)  # until every one of them has asked and told of its cache
            yield site
    finally:
        for process in reversed(processes):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in processes:
            process.wait()
        if not os.environ.get("BENCH_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def _storage(folder: Path, storage: Storage, processes: list[subprocess.Popen[bytes]]) -> str:
    words = [
        sys.executable, "-m", "bench.pilots.storage_server", "--folder", str(folder / "element"),
        "--delay", str(storage.delay), "--failure", str(storage.failure), "--spread", str(storage.spread),
        "--seed", str(storage.seed),
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, preexec_fn=libc.die_with_parent)
    processes.append(process)
    assert process.stdout is not None
    with process.stdout as io:  # its address is all that it says
        return io.readline().decode().strip()


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/v1/status")).status_code == 200
    except httpx.HTTPError:
        return False


async def _all_there(site: RealSite, many: int) -> bool:
    return await site.pilots() >= many


async def _until(site: RealSite, true: Any, what: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while not await true():
        dead = [process.args for process in site.processes if process.poll() is not None]
        if dead or time.monotonic() > give_up:
            raise SystemExit(f"{what} did not come; dead: {dead}; see {site.folder} (BENCH_KEEP=1 keeps it)")
        await asyncio.sleep(0.05)
