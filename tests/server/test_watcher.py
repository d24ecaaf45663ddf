"""Users' own jobs on a real Slurm, submitted through the shim by a plain sbatch, looked after by rules on a real server."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import RunningServer, until
from tests.server.test_engines import add_rule
from tests.servers import address

from holdfast.apps.watcher import WatcherSettings, make_watcher
from holdfast.client import AsyncHoldfastClient, Patience
from holdfast.services.mend_batch_jobs import MendBatchJobs

pytestmark = pytest.mark.live

SHIM = Path(__file__).resolve().parents[2] / "shim" / "holdfast-shim"
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 2.0, "at_most": 400 * 2**20}},
}
GREEDY = "import os,time;x=bytearray(150*2**20);time.sleep(3)"
"""Needs 150 MB for a few seconds, which is long enough for Slurm to see it."""


class Bench:
    """A user's shell with the shim in front, and the watcher of their jobs."""

    def __init__(self, folder: Path, watcher: MendBatchJobs) -> None:
        self.folder, self.watcher = folder, watcher

    def call(self, *words: str) -> str:
        known = dict(os.environ) | {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "HOLDFAST_SHIM_SPOOL": str(self.folder / "spool"),
        }
        ran = subprocess.run(words, capture_output=True, text=True, env=known, cwd=self.folder, check=True)
        return ran.stdout.strip()

    def sbatch(self, *words: str) -> str:
        return self.call("sbatch", "--parsable", "-o", f"{self.folder}/out", *words)

    async def seen(self, job: str) -> str:
        """As an engine polls it."""
        return await asyncio.to_thread(self.call, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State")

    async def settled(self, job: str) -> set[str]:
        """Every state that an engine saw until the job was settled."""
        states: set[str] = set()

        async def gone() -> bool:
            states.add(await self.seen(job))
            return job not in {one.id for one in self.watcher.spool.jobs()}

        await until(gone, f"job {job} to be settled", 120)
        states.add(await self.seen(job))
        return states


@pytest.fixture
async def bench(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[Any]:
    """Made with the settings that a test wants."""
    address("SLURM_CONF")
    await asyncio.to_thread(_install, tmp_path)
    client = AsyncHoldfastClient(local.url, local.domain.token("engine", tenant=tenant), patience=Patience(5))
    running: list[asyncio.Task[None]] = []

    def start(**more: Any) -> Bench:
        watcher = make_watcher(WatcherSettings(tmp_path / "spool", every=0.5, pace=20, **more), client)
        running.append(asyncio.create_task(watcher.run()))
        return Bench(tmp_path, watcher)

    yield start
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await client.aclose()


def _install(folder: Path) -> None:
    subprocess.run([SHIM, "--install", folder / "bin"], check=True, stderr=subprocess.PIPE)


async def incident_of(server: RunningServer, tenant: str, job: str) -> dict[str, Any]:
    person = server.person("viewer", tenant=tenant)

    async def found() -> dict[str, Any] | None:
        every = (await person.get("/v1/incidents")).json()["incidents"]
        return next((one for one in every if one["item"].endswith(f":{job}")), None)

    return dict(await until(found, "the incident"))


async def test_a_job_that_needs_more_memory_gets_it_under_its_own_id(
    local: RunningServer, tenant: str, bench: Any
) -> None:
    """What an engine polls never says that it failed."""
    await add_rule(local, tenant, MORE)
    user = bench(acting=True)
    job = user.sbatch("--no-requeue", "--mem=100", "-J", "greedy", "--wrap", f"python3 -c '{GREEDY}'")
    states = await user.settled(job)
    assert states <= {"", "PENDING", "RUNNING", "REQUEUED", "COMPLETED"}, states
    assert "COMPLETED" in states
    told = await incident_of(local, tenant, job)
    assert (told["cause"], told["state"]) == ("memory", "complete")
    assert (await user.watcher.reader.outcome([job]))[job].restarts == 1


async def test_a_fault_that_nobody_can_mend_is_shown_as_it_is(local: RunningServer, tenant: str, bench: Any) -> None:
    await add_rule(local, tenant, MORE)
    user = bench(acting=True)
    job = user.sbatch("--wrap", "echo 'KeyError: x' >&2; exit 3")
    assert "FAILED" in await user.settled(job)
    assert (await incident_of(local, tenant, job))["state"] == "failed"


async def test_who_looks_on_explains_and_touches_nothing(local: RunningServer, tenant: str, bench: Any) -> None:
    user = bench()
    job = user.sbatch("--no-requeue", "--mem=100", "--wrap", f"python3 -c '{GREEDY}'")
    assert await user.settled(job) & {"FAILED", "OUT_OF_MEMORY"}
    assert (await incident_of(local, tenant, job))["cause"] == "memory"
    assert (await user.watcher.reader.outcome([job]))[job].restarts == 0


async def test_a_user_who_cancels_is_not_second_guessed(local: RunningServer, tenant: str, bench: Any) -> None:
    user = bench(acting=True)
    job = user.sbatch("--wrap", "sleep 60")
    await until(lambda: _is(user, job, "RUNNING"), "the job to run", 60)
    await asyncio.to_thread(user.call, "scancel", job)
    states = await user.settled(job)
    assert any(state.startswith("CANCELLED") for state in states)


async def _is(user: Bench, job: str, state: str) -> bool:
    return await user.seen(job) == state
