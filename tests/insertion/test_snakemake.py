"""An unmodified Snakefile, run by the real Snakemake with its own Slurm plugin on the real Slurm, through the shim."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.insertion.shell import MORE, VERSIONS, incidents, shell
from tests.server.fixtures import local, tenant
from tests.server.running import RunningServer
from tests.server.test_engines import add_rule
from tests.servers import address

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.alone]

SNAKEMAKE = [
    "uv", "tool", "run", "--quiet", "--from", f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}",
    "--with", f"snakemake-executor-plugin-slurm=={VERSIONS['SNAKEMAKE_SLURM_VERSION']}",
    "snakemake", "--executor", "slurm", "--jobs", "4", "--default-resources", "slurm_account=root", "slurm_partition=main",
    "--latency-wait", "10", "--slurm-init-seconds-before-status-checks", "3",
]  # fmt: skip


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
async def test_it_survives_jobs_that_are_killed_for_their_memory(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, MORE)
    shutil.copy(Path(__file__).parent / "Snakefile", tmp_path)
    async with shell(tmp_path, local, tenant) as user:
        ran = await asyncio.to_thread(user.run, *SNAKEMAKE)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "Error in rule" not in ran.stderr
    found = await incidents(local, tenant)
    assert {(one["cause"], one["state"]) for one in found} == {("memory", "complete")}
    assert len(found) >= 2
