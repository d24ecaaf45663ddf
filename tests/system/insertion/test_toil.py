"""An unmodified CWL flow, run by the real Toil with its own Slurm batch system through the shim, on a Slurm that is taken apart meanwhile.

Toil and its CWL part come from PyPI, which takes a while the first time: `just insertion` runs this.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.failures import FAILURES, add_rules
from tests.system.insertion.shell import VERSIONS, incidents, shell
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]

TOIL = (
    "uv", "tool", "run", "--quiet", "--from", f"toil[cwl]=={VERSIONS['TOIL_VERSION']}", "toil-cwl-runner",
    "--batchSystem", "slurm", "--retryCount", "0", "--statePollingWait", "1", "--outdir", "out",
)  # fmt: skip


# Not the staging: a program that ends by itself with an error is a failed job to Toil, whose worker keeps what it printed in its own job store.
@pytest.mark.parametrize("name", sorted(FAILURES.keys() - {"staging"}))
async def test_it_survives(
    local: RunningServer, tenant: str, tmp_path: Path, fragile_slurm: OwnSlurm, name: str
) -> None:
    failure = FAILURES[name]
    await add_rules(local, tenant)
    shutil.copy(Path(__file__).parent / "flow.cwl", tmp_path)
    words = [*TOIL, "--jobStore", f"{tmp_path}/store", "--workDir", str(tmp_path), "flow.cwl#main"]
    async with shell(tmp_path, local, tenant, environment=fragile_slurm.environment) as user:
        async with failure.met(user, fragile_slurm):
            ran = await asyncio.to_thread(user.run, *words)
        assert ran.returncode == 0, ran.stderr[-6000:]
        assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    found_incidents = await incidents(local, tenant)
    assert {(incident["cause"], incident["state"]) for incident in found_incidents} == (
        {(failure.cause, "complete")} if failure.cause else set()
    )
