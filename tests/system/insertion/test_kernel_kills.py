"""Plain sbatch on a real Slurm that holds jobs to their memory as production does: by control groups, so that the kernel kills one process of a job."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.programs import greedy
from tests.system.insertion.shell import MORE, at_default_place, incident_of, incidents, shell
from tests.system.insertion.snakemake import SNAKEMAKE
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair]

GREEDY = 'python3 -c "x = bytearray(250 * 2**20)"'


@pytest.fixture(scope="module")
def kernel_slurm() -> Iterator[OwnSlurm]:
    """One node: nodes of one machine would share the control groups of jobs."""
    if not Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("this machine has no memory controller of control groups version 1")
    with TemporaryDirectory(prefix="forestay-slurm-", ignore_cleanup_errors=True) as folder:
        slurm = OwnSlurm(Path(folder))
        try:
            slurm.start("--nodes", "1", "--cgroups")
            yield slurm
        finally:
            slurm.order("stop")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"exec {GREEDY}", id="the whole script"),
        pytest.param(f"{GREEDY} || exit 1; echo done", id="one process, and the script gives up"),
        pytest.param(f"{GREEDY}; echo done", id="one process, and the script does not notice"),
        pytest.param(f"srun {GREEDY}", id="a step"),
    ],
)
async def test_a_job_of_which_the_kernel_kills_a_process_gets_more_memory_under_its_id(
    kernel_slurm: OwnSlurm, local: RunningServer, tenant: str, tmp_path: Path, script: str
) -> None:
    await add_rule(local, tenant, MORE)
    async with shell(tmp_path, local, tenant, environment=kernel_slurm.environment) as user:
        job = user.sbatch("--mem=100", "-J", "greedy", "--wrap", script)
        states = await user.settled(job)
        assert states <= {"", "PENDING", "RUNNING", "REQUEUED", "COMPLETED"}, states
        assert "COMPLETED" in states
        incident = await incident_of(local, tenant, job)
        assert (incident["cause"], incident["state"]) == ("memory", "complete")
        assert (await user.watcher.reader.outcome([job]))[job].restarts == 1


@pytest.mark.slow
async def test_snakemake_survives_jobs_of_which_the_kernel_kills_a_process(
    kernel_slurm: OwnSlurm, local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, MORE)
    shutil.copy(Path(__file__).parent / "Snakefile", tmp_path)
    with at_default_place(str(kernel_slurm.conf)):
        async with shell(tmp_path, local, tenant, environment=kernel_slurm.environment) as user:
            user.program("measure", greedy())
            ran = await asyncio.to_thread(user.run, *SNAKEMAKE)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "Error in rule" not in ran.stderr
    assert {(incident["cause"], incident["state"]) for incident in await incidents(local, tenant)} == {
        ("memory", "complete")
    }
