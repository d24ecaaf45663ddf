"""Pilots that the site agent starts in a real Slurm, and parts that wait in them for a word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.live.test_slurm_kills import SETTINGS
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private

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
        async with processes(domain, folder, lease=180, tes_containers="host-paths") as running:
            server = await running.server()
            running.reconciler()
            config = folder / "site.toml"
            text = SETTINGS.format(server=server.url, folder=folder)
            config.write_text(text.replace('"200 MiB"', '"600 MiB"').replace('"1 GiB"', '"2 GiB"'))
            running._start("site", "--config", str(config))
            yield running, server
            fragile_slurm.slurm("scancel", "--quiet", "--user=" + fragile_slurm.slurm("id", "-un"))


async def both_begun(folder: Path) -> None:
    async def both() -> bool:
        return (folder / "begun").exists() and len((folder / "begun").read_text().split()) == 2

    await until(both, "both parts to run on pilots in Slurm", 150)
