"""An unmodified Snakefile, run by the real Snakemake with its own Slurm plugin on the real Slurm, through the shim."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.server.fixtures import local, tenant
from tests.server.running import RunningServer
from tests.server.test_engines import add_rule
from tests.servers import address

from holdfast.apps.watcher import WatcherSettings, make_watcher
from holdfast.client import AsyncHoldfastClient, Patience

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.alone]

HERE = Path(__file__).parent
SHIM = HERE.parents[1] / "shim" / "holdfast-shim"
VERSIONS = dict(
    line.split("=", 1)
    for line in (HERE.parents[1] / "scripts" / "versions.env").read_text().splitlines()
    if "=" in line and not line.startswith("#")
)
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 3.0, "at_most": 1600 * 2**20}},
}


@pytest.fixture
async def user(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Path]:
    """A user's folder with the shim in front, and a watcher that acts."""
    address("SLURM_CONF")
    await asyncio.to_thread(_prepare, tmp_path)
    client = AsyncHoldfastClient(local.url, local.domain.token("engine", tenant=tenant), patience=Patience(5))
    watcher = make_watcher(WatcherSettings(tmp_path / "spool", acting=True, every=0.5, pace=20), client)
    running = asyncio.create_task(watcher.run())
    yield tmp_path
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await client.aclose()


def _prepare(folder: Path) -> None:
    shutil.copy(HERE / "Snakefile", folder)
    subprocess.run([SHIM, "--install", folder / "bin"], check=True, stderr=subprocess.PIPE)


def snakemake(folder: Path) -> subprocess.CompletedProcess[str]:
    known = dict(os.environ) | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "HOLDFAST_SHIM_SPOOL": str(folder / "spool"),
    }
    tool, plugin = VERSIONS["SNAKEMAKE_VERSION"], VERSIONS["SNAKEMAKE_SLURM_VERSION"]
    words = [
        "uv", "tool", "run", "--quiet", "--from", f"snakemake=={tool}", "--with", f"snakemake-executor-plugin-slurm=={plugin}",
        "snakemake", "--executor", "slurm", "--jobs", "4", "--default-resources", "slurm_account=root", "slurm_partition=main",
        "--latency-wait", "10", "--slurm-init-seconds-before-status-checks", "3",
    ]  # fmt: skip
    return subprocess.run(words, cwd=folder, env=known, capture_output=True, text=True, timeout=400, check=False)


@pytest.fixture
def at_its_place() -> Iterator[None]:
    """Snakemake takes Slurm's variables out of the environment of jobs, so the configuration must be where Slurm looks by default."""
    usual = Path("/etc/slurm/slurm.conf")
    if usual.exists():
        pytest.skip("this machine has a Slurm of its own at its default place")
    usual.parent.mkdir(exist_ok=True)
    usual.unlink(missing_ok=True)
    usual.symlink_to(address("SLURM_CONF"))
    yield
    usual.unlink()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may put Slurm's configuration at its default place")
@pytest.mark.usefixtures("at_its_place")
async def test_it_survives_jobs_that_are_killed_for_their_memory(local: RunningServer, tenant: str, user: Path) -> None:
    await add_rule(local, tenant, MORE)
    ran = await asyncio.to_thread(snakemake, user)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted((user / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "Error in rule" not in ran.stderr
    person = local.person("viewer", tenant=tenant)
    found: list[dict[str, Any]] = (await person.get("/v1/incidents")).json()["incidents"]
    assert {one["cause"] for one in found} == {"memory"}
    assert {one["state"] for one in found} == {"complete"}
    assert len(found) >= 2
