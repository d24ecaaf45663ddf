"""Pilots in a real Slurm while slurmctld, a slurmd and a node are killed: no job is lost, none takes effect twice, every extra attempt is recorded."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.own_slurm import OwnSlurm
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private
from forestay.domain.pilots.orphans import patience

pytestmark = [pytest.mark.live, pytest.mark.pair]
LEASE = 6
WAIT = 120.0
SETTINGS = """
site = "hall"
servers = ["{server}"]
token_file = "{folder}/token"
spool = "{folder}/spool"
outputs = "{folder}/outputs"
every = 1
settle = 5
max_pilots = 4

[pace]
commands = 20
first_wait = 1
longest_wait = 2

[pilot]
work = "{folder}/work"
idle_exit = 60

[[sizes]]
name = "standard"
cpus = 1
memory = "200 MiB"
disk = "1 GiB"
wall = "10 min"
"""


@dataclass(eq=False)
class Hall:
    """A site on a Slurm of its own."""

    slurm: OwnSlurm
    running: Processes
    folder: Path
    user: httpx.AsyncClient
    agent: httpx.AsyncClient

    async def order(self, *words: str) -> None:
        await asyncio.to_thread(self.slurm.order, *words)

    async def say(self, *words: str) -> str:
        return await asyncio.to_thread(self.slurm.slurm, *words)

    async def submit(self, count: int, seconds: float, *, gate: Path | None = None) -> list[str]:
        """Jobs that take so long, once there is the file that they wait for."""
        waits = f"while [ ! -e {gate} ]; do sleep 0.2; done; " if gate else ""
        script = f'echo "$FORESTAY_JOB $FORESTAY_ATTEMPT" >>{self.folder}/runs; {waits}sleep {seconds}; echo "$FORESTAY_ATTEMPT" >out'
        return await submit(self.user, *[{}] * count, command=["sh", "-c", script], outputs=["out"])

    async def jobs(self, ids: list[str]) -> dict[str, dict[str, Any]]:
        return {identifier: (await self.user.get(f"/v1/jobs/{identifier}")).json() for identifier in ids}

    async def count(self, ids: list[str], state: str) -> int:
        return sum(job["state"] == state for job in (await self.jobs(ids)).values())

    async def until_running(self, ids: list[str], many: int) -> None:
        async def enough() -> bool:
            return await self.count(ids, "running") + await self.count(ids, "completed") >= many

        await until(enough, f"{many} jobs run", WAIT)

    async def until_pilots(self, many: int) -> None:
        """Wait until so many pilots are there, and none is on its way."""

        async def there() -> bool:
            launches = (await self.agent.get("/v1/sites/hall/launches")).json()["launches"]
            return len(launches) == many and all(launch["pilot"] for launch in launches)

        await until(there, f"{many} pilots", WAIT)

    async def done(self, ids: list[str]) -> dict[str, dict[str, Any]]:
        """Wait for all, then audit: nothing lost, nothing done twice, every extra attempt recorded."""

        async def over() -> bool:
            return await self.count(ids, "completed") == len(ids)

        await until(over, "all jobs are done", WAIT)
        jobs = await self.jobs(ids)
        lines = (await asyncio.to_thread((self.folder / "runs").read_text)).splitlines()
        runs = Counter(names for names in (tuple(line.split()) for line in lines) if names[0] in ids)
        assert max(runs.values()) == 1, "no attempt ran twice"
        for job, document in jobs.items():
            attempts = [int(attempt) for name, attempt in runs if name == job]
            assert max(attempts) <= document["attempt"], "a run that nobody recorded"
            story = (await self.user.get(f"/v1/jobs/{job}/story")).json()
            # Also a claim that its pilot gave back before it began, which is not counted against the job.
            recorded = 1 + sum(entry["event"] == "release" for entry in story["story"])
            assert document["attempt"] <= recorded, f"a further attempt without a recorded release: {story['story']}"
            ends = [entry for entry in story["story"] if entry["event"] in ("complete", "adopt")]
            assert len(ends) == 1, "it took effect once"
            assert document["failures"] == 0
        return jobs

    async def released(self, job: str) -> bool:
        return int((await self.jobs([job]))[job]["releases"]) == 1

    async def place(self, job: str) -> tuple[str, str]:
        """The node and the batch job of the pilot that runs a job."""
        document = (await self.jobs([job]))[job]
        claim = document["claim"]
        launches = (await self.agent.get("/v1/sites/hall/launches")).json()["launches"]
        (launch,) = [other_launch for other_launch in launches if other_launch["pilot"] == claim["pilot"]]
        return str(claim["host"]), str(launch["batch_job"])

    def pid(self, batch_job: str) -> int:
        """The process of the pilot in a batch job."""
        for path in Path("/proc").iterdir():
            try:
                words = (path / "cmdline").read_bytes()
                if str(self.folder).encode() in words and b"forestay" in words and b"--launch" in words:
                    chunks = (path / "environ").read_bytes().split(b"\0")
                    if f"SLURM_JOB_ID={batch_job}".encode() in chunks:
                        return int(path.name)
            except OSError:
                continue
        raise AssertionError(f"no pilot in batch job {batch_job}")


@pytest.fixture(scope="module")
async def hall(own_slurm: OwnSlurm) -> AsyncIterator[Hall]:
    folder = own_slurm.folder / "hall"
    folder.mkdir()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(own_slurm.conf)
    try:
        async with store_room("sqlite", folder) as url:
            domain = Domain(url, folder)
            write_private(folder / "token", domain.token("site", tenant="here"))
            async with processes(domain, folder, lease=LEASE) as running:
                server = await running.server()
                running.reconciler()
                config = folder / "site.toml"
                config.write_text(SETTINGS.format(server=server.url, folder=folder))
                running._start("site", "--config", str(config))
                clients = [running.client(server, role, tenant="here") for role in ("operator", "site")]
                yield Hall(own_slurm, running, folder, *clients)
                own_slurm.slurm("scancel", "--quiet", "--user=" + own_slurm.slurm("id", "-un"))
    finally:
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before


async def test_slurmctld_is_killed_and_comes_back(hall: Hall) -> None:
    jobs = await hall.submit(24, 2)
    await hall.until_pilots(4)
    await asyncio.to_thread(hall.slurm.saved)  # it forgets what is newer
    before = await hall.count(jobs, "completed")
    await hall.order("kill9", "slurm", "ctld")
    try:

        async def goes_on() -> bool:
            return await hall.count(jobs, "completed") >= min(len(jobs), before + 4)

        await until(goes_on, "pilots go on without a controller", WAIT)
        launches = (await hall.agent.get("/v1/sites/hall/launches")).json()["launches"]
        assert {launch["state"] for launch in launches} <= {"submitted", "running", "planned"}
        ended = (await hall.agent.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
        assert ended == [], "its silence ended no launch"
    finally:
        await hall.order("launch", "slurm", "ctld")
    fields = await hall.done(jobs)
    assert {field["attempt"] for field in fields.values()} == {1}, "nothing ran twice"


async def test_a_slurmd_is_killed_and_comes_back(hall: Hall, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jobs = await hall.submit(8, 1, gate=gate)
    await hall.until_running(jobs, 4)
    (first, *_) = [name for name, document in (await hall.jobs(jobs)).items() if document["state"] == "running"]
    node, _ = await hall.place(first)
    part = "d" + node.removeprefix("n")
    await hall.order("kill9", "slurm", part)
    gate.touch()
    try:
        await until(lambda: hall.count([first], "completed"), "its pilot goes on without its slurmd", WAIT)
    finally:
        await hall.order("launch", "slurm", part)
    fields = await hall.done(jobs)
    assert {field["attempt"] for field in fields.values()} == {1}


async def test_a_slow_node_is_not_taken_for_dead(hall: Hall, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jobs = await hall.submit(1, 0, gate=gate)
    await hall.until_running(jobs, 1)
    _, batch_job = await hall.place(jobs[0])
    pid = await asyncio.to_thread(hall.pid, batch_job)
    os.kill(pid, signal.SIGSTOP)
    gate.touch()
    try:
        # The machine is slow for most of a lease: this is the time that is proved, not a wait for something.
        await asyncio.sleep(LEASE - 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    fields = await hall.done(jobs)
    assert (fields[jobs[0]]["attempt"], fields[jobs[0]]["releases"]) == (1, 0)


async def test_a_pilot_that_is_killed_frees_its_job_long_before_its_lease_is_over(hall: Hall, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jobs = await hall.submit(1, 0, gate=gate)
    await hall.until_running(jobs, 1)
    _, batch_job = await hall.place(jobs[0])
    began = time.monotonic()
    os.kill(await asyncio.to_thread(hall.pid, batch_job), signal.SIGKILL)
    await until(lambda: hall.released(jobs[0]), "the job is to be had again", WAIT)
    assert time.monotonic() - began < patience(LEASE) - 2, "not by silence"
    gate.touch()
    assert (await hall.done(jobs))[jobs[0]]["attempt"] == 2

    async def told() -> dict[str, Any] | None:
        ended = (await hall.agent.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
        return next((entry["end"] for entry in ended if entry["batch_job"] == batch_job), None)

    end = await until(told, "Slurm's word on its batch job", WAIT)
    assert (end["word"], end["signal"], end["lost"]) == ("FAILED", 9, False)


async def test_a_node_goes_down_with_its_pilots(hall: Hall, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jobs = await hall.submit(6, 1, gate=gate)
    await hall.until_pilots(4)
    await hall.until_running(jobs, 4)
    (first, *_) = [name for name, document in (await hall.jobs(jobs)).items() if document["state"] == "running"]
    node, _ = await hall.place(first)
    await hall.say("scontrol", "update", f"nodename={node}", "state=down", "reason=lost power")
    try:
        await until(lambda: hall.released(first), "the job is to be had again", WAIT)
        gate.touch()
        fields = await hall.done(jobs)
    finally:
        if "down" in await hall.say("sinfo", "-h", "-N", "-n", node, "-o", "%T"):
            await hall.say("scontrol", "update", f"nodename={node}", "state=resume")
    assert fields[first]["attempt"] == 2
    ended = (await hall.agent.get("/v1/sites/hall/launches?state=ended")).json()["launches"]
    lost = [entry["end"] for entry in ended if entry["end"]["lost"]]
    assert {entry["word"] for entry in lost} == {"NODE_FAIL"}
    assert all(entry["nodes"] == [node] and entry["reason"] for entry in lost)
