"""An unmodified Snakefile, run by the real Snakemake with its own Slurm plugin on the real Slurm, through the shim."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.servers import address
from tests.system.insertion.programs import greedy
from tests.system.insertion.shell import MORE, at_default_place, incidents, shell
from tests.system.insertion.snakemake import SNAKEMAKE
from tests.unit.apps.server.exceptions.test_engines import add_rule
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair]


@pytest.fixture
def at_its_place() -> Iterator[None]:
    with at_default_place(address("SLURM_CONF")):
        yield


@pytest.mark.usefixtures("at_its_place")
@pytest.mark.ledger("P0-17")
@pytest.mark.ledger("P0-22")
async def test_it_survives_jobs_that_are_killed_for_their_memory(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    """It polls the ids that sbatch told it, and hears of the second try under them; neither it nor Slurm is changed."""
    await add_rule(local, tenant, MORE)
    shutil.copy(Path(__file__).parent / "Snakefile", tmp_path)
    async with shell(tmp_path, local, tenant) as user:
        user.program("measure", greedy())
        ran = await asyncio.to_thread(user.run, *SNAKEMAKE)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "Error in rule" not in ran.stderr
    found_incidents = await incidents(local, tenant)
    assert {(incident["cause"], incident["state"]) for incident in found_incidents} == {("memory", "complete")}
    assert len(found_incidents) >= 2
