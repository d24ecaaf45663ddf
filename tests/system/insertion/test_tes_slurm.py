"""The same steps by an unmodified py-tes, on pilots that the site agent starts in a real Slurm, while that has no controller for a minute."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.system.insertion.hall import WAITING, both_begun, hall
from tests.system.insertion.plugin_failures import OUTAGE
from tests.unit.apps.server.processes import Processes, Started

__all__ = ["hall"]
pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow, pytest.mark.ledger("P0-22")]


def start(running: Processes, server: Started, folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(Path(__file__).with_name("tes_flow.py")), server.url, str(folder)]
    known = os.environ | {"TES_TOKEN": running.domain.token("submitter", tenant="here")}
    with (folder / "client.log").open("wb") as sink:
        return subprocess.Popen(words, env=known, stdout=sink, stderr=sink)


async def test_it_survives_a_scheduler_that_is_away_for_a_minute(
    hall: tuple[Processes, Started], fragile_slurm: OwnSlurm
) -> None:
    running, server = hall
    folder = fragile_slurm.folder / "flow"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "measure").write_text(WAITING.format(folder=folder))
    (folder / "bin" / "measure").chmod(0o755)
    client = await asyncio.to_thread(start, running, server, folder)
    try:
        await both_begun(folder)
        await asyncio.to_thread(fragile_slurm.stop_controller)
        try:
            # The minute is what is proved, not a wait for something: the parts run on in it, and nobody gives them up.
            await asyncio.sleep(OUTAGE)
            assert client.poll() is None, (folder / "client.log").read_text()
            (folder / "go").touch()  # they end, and what follows them runs, while there is still no scheduler
            code = await asyncio.to_thread(client.wait, 240)
            assert code == 0, (folder / "client.log").read_text()
        finally:
            await asyncio.to_thread(fragile_slurm.order, "launch", "slurm", "ctld")
    finally:
        client.kill()
        client.wait()
    assert (folder / "out" / "merged.txt").read_text().split() == ["1", "2"]
    person = running.client(server, "viewer", tenant="here")
    jobs = (await person.get("/v1/jobs")).json()["jobs"]
    assert {(job["attempt"], job["failures"], job["state"]) for job in jobs} == {(1, 0, "completed")}
    assert len(jobs) == 6, "three tasks, and three that bring their outputs"
