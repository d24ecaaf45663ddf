"""The unmodified Snakefile by our plugin, on pilots that the site agent starts in a real Slurm, while that has no controller for a minute."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.insertion.plugin_faults import OUTAGE
from tests.insertion.snakemake_room import FlowFolder, snakemake
from tests.live.own_slurm import OwnSlurm
from tests.live.test_slurm_kills import SETTINGS
from tests.server.processes import Processes, Started, processes
from tests.server.running import Domain, until
from tests.server.store_room import store_room

from holdfast.apps.tokens import write_private

__all__ = ["snakemake"]
pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.slow, pytest.mark.ledger("P0-22")]
WAITING = """#!/bin/sh
echo "$1" >> {folder}/begun
while ! test -e {folder}/go; do sleep 0.2; done
echo "$1"
"""


@pytest.fixture
async def hall(fragile_slurm: OwnSlurm, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Processes, Started]]:
    """A site agent that fills the Slurm with pilots as jobs come."""
    monkeypatch.setenv("SLURM_CONF", str(fragile_slurm.conf))
    folder = fragile_slurm.folder / "hall"
    folder.mkdir()
    async with store_room("sqlite", folder) as url:
        domain = Domain(url, folder)
        write_private(folder / "token", domain.token("site", tenant="here"))
        async with processes(domain, folder, lease=180) as running:
            server = await running.server()
            running.keeper()
            config = folder / "site.toml"
            text = SETTINGS.format(server=server.url, folder=folder)
            config.write_text(text.replace('"200 MiB"', '"600 MiB"').replace('"1 GiB"', '"2 GiB"'))
            running._start("site", "--config", str(config))
            yield running, server
            fragile_slurm.slurm("scancel", "--quiet", "--user=" + fragile_slurm.slurm("id", "-un"))


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

        async def both() -> bool:
            return (folder / "begun").exists() and len((folder / "begun").read_text().split()) == 2

        await until(both, "both parts to run on pilots in Slurm", 150)
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
        assert {(one["attempt"], one["faults"], one["state"]) for one in jobs} == {(1, 0, "completed")}
    finally:
        flow.close()
