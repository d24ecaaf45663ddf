"""Servers, reconcilers and pilots as processes of their own, to be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.system.chaos.processes import free_port, launch
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import Domain, until

from forestay.adapters.private_file import write_private

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class Started:
    """One process."""

    process: subprocess.Popen[bytes]
    url: str = ""

    def kill(self) -> None:
        """kill -9, the whole session."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_alone(self) -> None:
        """kill -9 of this process only; what it started lives on as it may."""
        self.process.kill()
        self.process.wait()

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(eq=False)
class Processes:
    """What runs on one domain."""

    domain: Domain
    logs: Path
    settings: dict[str, Any]
    python: str = sys.executable
    """With the release whose processes are started from now on."""
    started: list[Started] = field(default_factory=list)
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Variables for those started from now on, beside the settings."""

    def _start(self, *words: str, **settings: Any) -> Started:
        known = {"store": self.domain.store, "state": self.domain.state} | self.settings | settings
        environment = (
            os.environ | self.environment | {f"FORESTAY_{name.upper()}": str(value) for name, value in known.items()}
        )
        log = self.logs / f"{words[0]}-{len(self.started)}.log"
        started = Started(launch([self.python, "-m", "forestay", *words], log, environment=environment))
        self.started.append(started)
        return started

    async def server(self, *, port: int = 0, **settings: Any) -> Started:
        """A server that answers."""
        port = port or free_port()
        started = self._start("server", port=port, **settings)
        started.url = f"http://127.0.0.1:{port}"
        token = self.domain.token("viewer", tenant="starting")

        async def answers() -> bool:
            assert started.process.poll() is None, "the server did not start; its log is in the test's folder"
            try:
                async with http_client(started.url, token) as client:
                    return (await client.get("/v1/status")).status_code == 200
            except httpx.HTTPError:
                return False

        await until(answers, "a server that answers")
        return started

    async def servers(self, many: int) -> list[Started]:
        return list(await asyncio.gather(*(self.server() for _ in range(many))))

    def reconciler(self, **settings: Any) -> Started:
        return self._start("reconciler", **settings)

    def orchestrator(self) -> Started:
        return self._start("orchestrator")

    def watcher(self, tenant: str, server: Started, spool: Path, *options: str) -> Started:
        """One that looks after the jobs of a shim."""
        token = self.domain.token("engine", tenant=tenant)
        return self._start("watcher", "--spool", str(spool), *options, server=server.url, token=token)

    def pilot(self, tenant: str, *servers: Started, slots: int = 1, secret: str = "", **options: str) -> Started:
        """A real pilot; it knows these servers. With a secret it enrols by that."""
        enrol = self.logs / f"enrol-{len(self.started)}"
        write_private(enrol, secret or self.domain.token("enrol", tenant=tenant, subject="enroller"))
        words = [word for server in servers for word in ("--server", server.url)]
        words += [
            "--enrolment-file" if secret else "--token-file",
            str(enrol),
            "--slots",
            str(slots),
            "--cpus",
            "64",
            "--grace",
            "1",
        ]
        words += ["--outputs", str(self.logs / "outputs"), "--work", str(self.logs / f"work-{len(self.started)}")]
        words += [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        return self._start("pilot", *words)

    def client(self, server: Started, *roles: str, tenant: str) -> httpx.AsyncClient:
        """A person's connection; closed with the block."""
        client = http_client(server.url, self.domain.token(*roles, tenant=tenant))
        self.clients.append(client)
        return client

    async def stop(self) -> None:
        for client in self.clients:
            await client.aclose()
        for started in self.started:
            if started.process.poll() is None:
                started.kill()


@asynccontextmanager
async def processes(domain: Domain, logs: Path, **settings: Any) -> AsyncIterator[Processes]:
    """Start processes on a domain; none of them outlives the block."""
    domain.token("viewer", tenant="first")  # makes the signing key before several processes would
    running = Processes(domain, logs, settings)
    try:
        yield running
    finally:
        await running.stop()
