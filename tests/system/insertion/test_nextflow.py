"""An unmodified pipeline, run by the real Nextflow with its own Slurm executor through the shim, on a Slurm that is taken apart meanwhile.

Without the shim Nextflow waits for minutes for the exit code that a killed job never wrote, and fails. Nextflow comes from its own jars, which takes minutes
the first time: `just insertion` runs this.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.failures import FAILURES, Failure, add_rules
from tests.system.insertion.nextflow import QUIET, nextflow_command
from tests.system.insertion.shell import incidents, shell
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]

CONFIG = """
process.executor = 'slurm'
executor.pollInterval = '1 sec'
executor.queueStatInterval = '2 sec'
"""


@pytest.fixture(scope="session")
def nextflow() -> list[str]:
    return nextflow_command()


async def run(
    failure: Failure, folder: Path, local: RunningServer, tenant: str, slurm: OwnSlurm, nextflow: list[str]
) -> subprocess.CompletedProcess[str]:
    await add_rules(local, tenant)
    shutil.copy(Path(__file__).parent / "main.nf", folder)
    (folder / "nextflow.config").write_text(CONFIG)
    settings = QUIET | {"NXF_HOME": str(folder / "home")}
    settings["FORESTAY_REQUEUE"] = "allow"  # Nextflow submits everything with --no-requeue
    words = [*nextflow, "run", "main.nf", "-ansi-log", "false"]
    async with shell(folder, local, tenant, environment=slurm.environment) as user, failure.met(user, slurm):
        ran = await asyncio.to_thread(user.run, *words, more=settings)
        if ran.returncode:  # it does not wait for whoever looks after its jobs
            await until(lambda: incidents(local, tenant), "an incident", 60)
        return ran


@pytest.mark.parametrize("name", sorted(FAILURES.keys() - {"staging"}))
async def test_it_survives(
    local: RunningServer, tenant: str, tmp_path: Path, fragile_slurm: OwnSlurm, nextflow: list[str], name: str
) -> None:
    failure = FAILURES[name]
    ran = await run(failure, tmp_path, local, tenant, fragile_slurm, nextflow)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "retried" not in ran.stdout
    found_incidents = await incidents(local, tenant)
    assert {(incident["cause"], incident["state"]) for incident in found_incidents} == (
        {(failure.cause, "complete")} if failure.cause else set()
    )


async def test_what_its_program_says_itself_it_hears_at_once(
    local: RunningServer, tenant: str, tmp_path: Path, fragile_slurm: OwnSlurm, nextflow: list[str]
) -> None:
    """A limit. Nextflow reads the exit code from a file that its own wrapper writes in the job, not from Slurm: a program that ends by itself with an error has
    failed before anybody can decide on it. The cause is known all the same, and what Nextflow then cancels stays cancelled."""
    ran = await run(FAILURES["staging"], tmp_path, local, tenant, fragile_slurm, nextflow)
    assert ran.returncode == 1
    assert "terminated with an error exit status (7)" in ran.stdout
    assert {incident["cause"] for incident in await incidents(local, tenant)} == {"transfer"}
