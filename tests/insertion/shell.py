"""A user's shell on the real Slurm with the shim in front, and a watcher that acts; for tests of unmodified engines."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.server.running import RunningServer
from tests.servers import address

from holdfast.apps.watcher import WatcherSettings, make_watcher
from holdfast.client import AsyncHoldfastClient, Patience

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "shim" / "holdfast-shim"
VERSIONS = dict(
    line.split("=", 1)
    for line in (ROOT / "scripts" / "versions.env").read_text().splitlines()
    if "=" in line and not line.startswith("#")
)
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 3.0, "at_most": 1600 * 2**20}},
}
"""What a rule does about want of memory."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Where the user works."""

    folder: Path

    def run(
        self, *words: str, more: Mapping[str, str] | None = None, seconds: float = 400
    ) -> subprocess.CompletedProcess[str]:
        known = dict(os.environ) | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOLDFAST_SHIM_SPOOL": str(self.folder / "spool"),
        }
        return subprocess.run(
            words,
            cwd=self.folder,
            env={**known, **(more or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


@asynccontextmanager
async def shell(folder: Path, server: RunningServer, tenant: str) -> AsyncIterator[Shell]:
    address("SLURM_CONF")
    await asyncio.to_thread(_install, folder)
    client = AsyncHoldfastClient(server.url, server.domain.token("engine", tenant=tenant), patience=Patience(5))
    watcher = make_watcher(WatcherSettings(folder / "spool", acting=True, every=0.5, pace=20), client)
    running = asyncio.create_task(watcher.run())
    try:
        yield Shell(folder)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.aclose()


def _install(folder: Path) -> None:
    subprocess.run([SHIM, "--install", folder / "bin"], check=True, stderr=subprocess.PIPE)


async def incidents(server: RunningServer, tenant: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.person("viewer", tenant=tenant).get("/v1/incidents")).json()[
        "incidents"
    ]
    return found
