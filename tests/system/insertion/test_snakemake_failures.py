"""The same unmodified Snakefile by the real Snakemake with its own Slurm plugin, through the shim, on a Slurm that is taken apart meanwhile.

Snakemake sees no failure in any of them, and no retry of the user's is spent: the flow allows none. Each takes a minute or two; `just insertion` runs them.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.failures import FAILURES, add_rules
from tests.system.insertion.shell import at_default_place, incidents, shell
from tests.system.insertion.snakemake import SNAKEMAKE
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]


@pytest.mark.parametrize("name", FAILURES)
async def test_it_survives(
    local: RunningServer, tenant: str, tmp_path: Path, fragile_slurm: OwnSlurm, name: str
) -> None:
    failure = FAILURES[name]
    await add_rules(local, tenant)
    shutil.copy(Path(__file__).parent / "Snakefile", tmp_path)
    with at_default_place(str(fragile_slurm.conf)):
        async with shell(tmp_path, local, tenant, environment=fragile_slurm.environment) as user:
            async with failure.met(user, fragile_slurm):
                ran = await asyncio.to_thread(user.run, *SNAKEMAKE)
            assert ran.returncode == 0, ran.stderr[-3000:]
            assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
            assert "Error in rule" not in ran.stderr
    found_incidents = await incidents(local, tenant)
    assert {(incident["cause"], incident["state"]) for incident in found_incidents} == (
        {(failure.cause, "complete")} if failure.cause else set()
    )
