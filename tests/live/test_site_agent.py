"""A site agent on a real Slurm: pilots come for queued jobs and go when there are none; agents that are killed submit nothing twice."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import servers
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private

pytestmark = [pytest.mark.live, pytest.mark.pair]
PATIENCE = 120.0
SETTINGS = """
site = "hall"
servers = ["{server}"]
token_file = "{folder}/token"
spool = "{folder}/spool"
outputs = "{folder}/outputs"
every = 1
settle = 5
{limits}

[pace]
commands = 20

[pilot]
work = "{folder}/work"
idle_exit = {idle_exit}

[[sizes]]
name = "standard"
cpus = 2
memory = "200 MiB"
disk = "1 GiB"
wall = "10 min"
"""


def slurm(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@dataclass(eq=False)
class Hall:
    """One site on the Slurm of `scripts/servers`."""

    running: Processes
    folder: Path
    server: Started
    user: httpx.AsyncClient
    agent_client: httpx.AsyncClient

    def agent(self, *, limits: str, idle_exit: int) -> Started:
        config = self.folder / "site.toml"
        text = SETTINGS.format(server=self.server.url, folder=self.folder, limits=limits, idle_exit=idle_exit)
        config.write_text(text)
        return self.running._start("site", "--config", str(config))

    async def launches(self) -> list[dict[str, Any]]:
        """All of them, those that ended last."""
        still_open = (await self.agent_client.get("/v1/sites/hall/launches")).json()["launches"]
        ended = (await self.agent_client.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
        return [*still_open, *ended]

    async def pilots(self) -> dict[str, int]:
        counts: dict[str, int] = (await self.agent_client.get("/v1/sites/hall/demand")).json()["pilots"]
        return counts

    async def done(self, jobs: list[str]) -> bool:
        states = [(await self.user.get(f"/v1/jobs/{job}")).json()["state"] for job in jobs]
        assert "failed" not in states
        return set(states) == {"completed"}

    async def batch_jobs(self) -> Counter[str]:
        """The names of every batch job that was ever submitted for this site, by Slurm's own word."""
        names = [launch["name"] for launch in await self.launches()]
        if not names:
            return Counter()
        returned_slurm = slurm(
            "sacct", "-n", "-X", "-P", "-D", "--format=JobName", "-S", "now-1days", f"--name={','.join(names)}"
        )
        waiting = slurm("squeue", "-h", "-t", "all", "-o", "%j", f"--name={','.join(names)}")
        accounted = Counter(returned_slurm.split())
        return accounted | Counter(waiting.split())


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    servers.slurm()
    async with store_room("sqlite", tmp_path) as url:
        domain = Domain(url, tmp_path)
        write_private(tmp_path / "token", domain.token("site", tenant="here"))
        async with processes(domain, tmp_path, lease=30) as running:
            server = await running.server()
            running.reconciler()
            user = running.client(server, "operator", tenant="here")
            made = Hall(running, tmp_path, server, user, running.client(server, "site", tenant="here"))
            try:
                yield made
            finally:
                names = [launch["name"] for launch in await made.launches()]
                if names:
                    slurm("scancel", "--quiet", *(word for name in names for word in ("--name", name)))


@pytest.mark.ledger("P3-05", "P3-04")
async def test_pilots_come_for_queued_jobs_run_them_and_go(hall: Hall) -> None:
    hall.agent(limits="max_pilots = 3", idle_exit=3)
    jobs = await submit(hall.user, *[{}] * 9, command=["sh", "-c", "sleep 0.5; hostname > name"], outputs=["name"])
    await until(lambda: hall.done(jobs), "all jobs are done by pilots of the site agent", PATIENCE)
    first = (await hall.user.get(f"/v1/jobs/{jobs[0]}")).json()
    assert first["last"]["host"] in {f"n{number}" for number in range(1, 11)}, "a node of that Slurm"
    during = await hall.launches()
    assert 1 <= len(during) <= 3, "never more than max_pilots"
    shown = slurm("scontrol", "show", "job", during[0]["batch_job"])
    assert f"JobName={during[0]['name']}" in shown
    assert "Requeue=0" in shown
    script = slurm("scontrol", "write", "batch_script", during[0]["batch_job"], "-")
    assert "fse-" not in script, "no secret in the script"

    async def all_gone() -> list[dict[str, Any]] | None:
        launches = await hall.launches()
        return launches if {launch["state"] for launch in launches} == {"ended"} else None

    ended = await until(all_gone, "pilots without work end, and Slurm says so", PATIENCE)
    assert {(entry["end"]["word"], entry["end"]["exit_code"]) for entry in ended} == {("COMPLETED", 0)}
    assert len(ended) <= 4, "the number of submissions is bounded"
    assert max((await hall.batch_jobs()).values()) == 1
    assert list((hall.folder / "spool/secrets").iterdir()) == [], "used secrets are gone"


@pytest.mark.ledger("P3-04")
async def test_agents_killed_again_and_again_submit_nothing_twice_and_keep_the_idle_pilots(hall: Hall) -> None:
    limits = "max_pilots = 4\nmin_idle = 1"
    dice = random.Random(7)
    jobs = await submit(hall.user, *[{}] * 6, command=["sleep", "1"])
    for _ in range(4):
        agent = hall.agent(limits=limits, idle_exit=300)
        await asyncio.sleep(dice.uniform(2.5, 3.4))
        agent.kill_alone()
        alive = slurm("squeue", "-h", "-o", "%j").split()
        ours = {launch["name"] for launch in await hall.launches()}
        assert len([name for name in alive if name in ours]) <= 4
    hall.agent(limits=limits, idle_exit=300)
    await until(lambda: hall.done(jobs), "all jobs are done", PATIENCE)

    async def settled() -> bool:
        pilots = await hall.pilots()
        return pilots["idle"] >= 1 and pilots["inactive"] == 0 and pilots["busy"] == 0

    await until(settled, "a pilot stands ready", PATIENCE)
    counted = await hall.batch_jobs()
    assert max(counted.values()) == 1, counted
    launches = await hall.launches()
    assert len(launches) <= 4
    states = Counter(launch["state"] for launch in launches)
    assert states["planned"] == 0
    assert len(counted) == states["running"] + states["submitted"] + sum(
        bool(launch["batch_job"]) for launch in launches if launch["state"] == "ended"
    )
