"""The unmodified Snakefile by our plugin, on pilots that the site agent starts in a real Slurm, while that has no controller for a minute."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.hall import WAITING, both_begun, hall
from tests.system.insertion.plugin_failures import OUTAGE
from tests.system.insertion.snakemake_room import FlowFolder, snakemake
from tests.unit.apps.server.processes import Processes, Started

__all__ = ["hall", "snakemake"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow, pytest.mark.ledger("P0-22")]


async def test_it_survives_a_scheduler_that_is_away_for_a_minute(
    hall: tuple[Processes, Started], fragile_slurm: OwnSlurm, snakemake: Path
) -> None:
    running, server = hall
    folder = fragile_slurm.folder / "flow"
    folder.mkdir()
    token = running.domain.token("submitter", tenant="here")
    flow = FlowFolder(snakemake, folder, server.url, token)
    flow.holds()
    flow.calls(WAITING.format(folder=folder))
    try:
        run = await asyncio.to_thread(flow.start)
        await both_begun(folder)
        await asyncio.to_thread(fragile_slurm.stop_controller)
        try:
            # The minute is what is proved, not a wait for something: the parts run on in it, and nobody gives them up.
            await asyncio.sleep(OUTAGE)
            assert run.process.poll() is None, run.said
            (folder / "go").touch()  # they end, and what follows them runs, while there is still no scheduler
            assert await asyncio.to_thread(run.ended) == 0, run.said
        finally:
            await asyncio.to_thread(fragile_slurm.order, "launch", "slurm", "ctld")
        flow.well(run)
        person = running.client(server, "viewer", tenant="here")
        jobs = (await person.get("/v1/jobs")).json()["jobs"]
        assert {(job["attempt"], job["failures"], job["state"]) for job in jobs} == {(1, 0, "completed")}
    finally:
        flow.close()
