"""The processes of one domain of the demonstration, each one a child that can be killed: server, reconciler, orchestrator and pilots."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forestay.adapters.private_file import write_private
from forestay.adapters.temporal.dev_server import tied
from forestay.apps.config.settings import Settings, load
from forestay.apps.operations.tokens import make_token

SITE = "demo"
LEASE = 20
"""Seconds: short enough for a visitor, long enough for a machine that is busy."""
PORTS = (10_000, 30_000)
GIBIBYTE = 1 << 30
HOUR = 3600


@dataclass(slots=True, eq=False)
class DemoProcess:
    """One place, filled by one process after the other."""

    name: str
    words: Sequence[str]
    environment: dict[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    async def start(self) -> None:
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C reaches it through us. If we are killed, the kernel ends it.
            self.process = await asyncio.create_subprocess_exec(
                *tied([sys.executable, *self.words]),
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def ended(self) -> None:
        if self.process is not None:
            await self.process.wait()

    async def kill(self) -> int:
        """kill -9 of this process alone; its id."""
        process = self.process
        if process is None or process.returncode is not None:
            raise RuntimeError(f"{self.name} does not run; its log is {self.log}")
        process.send_signal(signal.SIGKILL)
        await process.wait()
        return process.pid

    async def stop(self) -> None:
        if self.process is None:
            return
        for number, patience in ((signal.SIGTERM, 5.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 10.0)):
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await self.process.wait()
                    return


@dataclass(slots=True, eq=False)
class DemoDomain:
    """One domain: its processes, and the folder in which it keeps its files."""

    folder: Path
    temporal: str
    """The address of Temporal's server, which the domains share."""
    namespace: str
    """This domain's own there."""
    port: int = field(default_factory=lambda: _free_port())
    processes: dict[str, DemoProcess] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def outputs(self) -> Path:
        return self.folder / "outputs"

    @property
    def settings(self) -> Settings:
        return load(self.environment)

    def own_settings(self) -> dict[str, str]:
        """Those that this domain has beside what every domain has."""
        return {}

    @property
    def environment(self) -> dict[str, str]:
        """Of every process here; none of the user's own settings."""
        settings = {
            "store": f"sqlite:///{self.folder / 'forestay.db'}",
            "state": str(self.folder),
            "port": str(self.port),
            "url": self.url,
            "lease": str(LEASE),
            "temporal": self.temporal,
            "temporal_namespace": self.namespace,
            "outputs": str(self.outputs),
            "peer_hosts": "127.0.0.1",
            **self.own_settings(),
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        return kept | {f"FORESTAY_{name.upper()}": value for name, value in settings.items()}

    def token(self, subject: str, *roles: str) -> str:
        return make_token(self.settings, subject=subject, tenant="default", roles=roles, seconds=12 * HOUR)

    async def start(self) -> None:
        """Start everything but the pilots, which want a server that answers."""
        self.outputs.mkdir(exist_ok=True)
        write_private(self.folder / "enrol-token", self.token("demo-pilot", "enrol"))
        for name in ("server", "reconciler", "orchestrator"):
            await self._start(name, "-m", "forestay", name)

    async def start_pilot(self, host: str, slots: int) -> None:
        await self._start(
            f"pilot-{host}", "-m", "forestay_pilot",
            "--server", self.url,
            "--token-file", str(self.folder / "enrol-token"),
            "--host", host,
            "--site", SITE,
            "--slots", str(slots),
            "--cpus", str(slots),
            "--memory", str(4 * GIBIBYTE),
            "--disk", str(4 * GIBIBYTE),
            "--outputs", str(self.outputs),
            "--work", str(self.folder / "work" / host),
            "--cache", str(self.folder / "cache" / host),
            "--cache-space", str(GIBIBYTE),
            "--share", "127.0.0.1",
            "--grace", "1",
        )  # fmt: skip

    async def _start(self, name: str, *words: str) -> None:
        child = DemoProcess(name, words, self.environment, self.folder / f"{name}.log")
        await child.start()
        self.processes[name] = child

    async def kill(self) -> int:
        """kill -9 of all its processes, as when a site loses its power; how many."""
        running = [child for child in self.processes.values() if child.process and child.process.returncode is None]
        await asyncio.gather(*(child.kill() for child in running))
        return len(running)

    async def stop(self) -> None:
        """Pilots first, while a server can still take what they have."""
        pilots = [child for name, child in self.processes.items() if name.startswith("pilot-")]
        others = [child for child in self.processes.values() if child not in pilots]
        await asyncio.gather(*(child.stop() for child in pilots))
        await asyncio.gather(*(child.stop() for child in others))


def _free_port() -> int:
    """One below the ports of outgoing connections: the server is killed and started again, and no connection may take its port meanwhile."""
    while True:
        port = random.randrange(*PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
