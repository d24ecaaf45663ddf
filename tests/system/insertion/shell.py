"""A user's shell on a real Slurm with the shim in front, and the watcher of their jobs; for tests of plain sbatch and of unmodified engines."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.servers import address, versions
from tests.unit.apps.server.running import RunningServer, until

from forestay.apps.watcher.process import WatcherSettings, make_watcher
from forestay.client import AsyncForestayClient, Patience
from forestay.services.insertion.batch_job_recovery import BatchJobRecovery

ROOT = Path(__file__).parents[3]
SHIM = ROOT / "shim" / "forestay-shim"
VERSIONS = versions()
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 3.0, "at_most": 1600 * 2**20}},
}
"""What a rule does about want of memory."""
GREEDY = "x = bytearray(700 * 2**20); time.sleep(4)"
"""Memory beyond what the flows ask for, long enough for Slurm to see it."""


@dataclass(slots=True)
class Shell:
    """Where the user works."""

    folder: Path
    environment: Mapping[str, str]
    watcher: BatchJobRecovery
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of what the user calls: the shim's commands first, then the user's own programs."""
        path = f"{self.folder / 'bin'}:{self.folder / 'programs'}:{os.environ['PATH']}"
        return {
            **self.environment,
            "PATH": path,
            "FORESTAY_SHIM_SPOOL": str(self.folder / "spool"),
            **(more or {}),
        }

    def run(
        self, *words: str, more: Mapping[str, str] | None = None, seconds: float = 400
    ) -> subprocess.CompletedProcess[str]:
        with subprocess.Popen(
            words, cwd=self.folder, env=self.settings(more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:  # fmt: skip
            self.running.append(process)
            try:
                out, err = process.communicate(timeout=seconds)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def call(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        """A command that must go well."""
        ran = self.run(*words, more=more, seconds=200)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def sbatch(self, *words: str, more: Mapping[str, str] | None = None) -> str:
        return self.call("sbatch", "--parsable", "-o", f"{self.folder}/out-%j", *words, more=more)

    def bare(self, *words: str) -> str:
        """Slurm's own word."""
        ran = self.run(*words, more={"FORESTAY_SHIM": "off"})
        return ran.stdout.strip()

    def program(self, name: str, text: str) -> None:
        """A program of the user's, which their flows call."""
        place = self.folder / "programs" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)

    async def seen(self, job: str) -> str:
        """As an engine polls it."""
        return await asyncio.to_thread(self.call, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State")

    async def settled(self, job: str) -> set[str]:
        """Every state that an engine saw until the job was settled."""
        states: set[str] = set()

        async def gone() -> bool:
            states.add(await self.seen(job))
            return job not in {watched_job.id for watched_job in self.watcher.spool.jobs()}

        await until(gone, f"job {job} to be settled", 120)
        states.add(await self.seen(job))
        return states


@asynccontextmanager
async def shell(
    folder: Path,
    server: RunningServer,
    tenant: str,
    *,
    environment: Mapping[str, str] | None = None,
    records: Path | None = None,
    before_end: bool = False,
    acting: bool = True,
    override_no_requeue: bool = False,
    url: str = "",
) -> AsyncIterator[Shell]:
    """Installed, with a watcher at work, on the shared Slurm unless another environment says otherwise. The watcher reaches the server by
    `url`, if one is given."""
    if environment is None:
        address("SLURM_CONF")
    await asyncio.to_thread(install, folder / "bin", records)
    known = dict(environment or os.environ)
    client = AsyncForestayClient(url or server.url, server.domain.token("engine", tenant=tenant), patience=Patience(5))
    settings = WatcherSettings(folder / "spool", acting=acting, every=0.5, pace=20, records=records)
    settings = settings._replace(before_end=before_end, patience=60)  # on a machine that does much else
    settings = settings._replace(override_no_requeue=override_no_requeue)
    watcher = make_watcher(settings, client, known)
    running = asyncio.create_task(watcher.run())
    user = Shell(folder, known, watcher)
    try:
        if acting:
            await until(lambda: asyncio.to_thread(_vouches, watcher), "the watcher to vouch", 60)
        yield user
    finally:
        for process in user.running:
            if process.poll() is None:
                process.kill()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await client.aclose()


def _vouches(watcher: BatchJobRecovery) -> bool:
    """Slurm tells the end of a job in whole seconds, so one that ends in the first second may have ended before."""
    since = watcher.spool.vouched()
    return since is not None and time.time() > since + 1


def install(folder: Path, records: Path | None = None) -> None:
    subprocess.run([SHIM, "--install", folder, *([records] if records else [])], check=True, stderr=subprocess.PIPE)


@contextmanager
def at_default_place(conf: str) -> Iterator[None]:
    """Snakemake takes Slurm's variables out of the environment of jobs, so the configuration must be where Slurm looks by default."""
    if os.getuid() != 0:
        pytest.skip("only root may put Slurm's configuration at its default place")
    usual = Path("/etc/slurm/slurm.conf")
    usual.parent.mkdir(exist_ok=True)
    with (usual.parent / ".forestay-tests").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # tests beside this one want their own configuration there
        if usual.exists():
            pytest.skip("this machine has a Slurm of its own at its default place")
        usual.unlink(missing_ok=True)
        usual.symlink_to(conf)
        try:
            yield
        finally:
            usual.unlink()


async def incidents(server: RunningServer, tenant: str) -> list[dict[str, Any]]:
    incidents: list[dict[str, Any]] = (await server.person("viewer", tenant=tenant).get("/v1/incidents")).json()[
        "incidents"
    ]
    return incidents


async def incident_of(server: RunningServer, tenant: str, job: str) -> dict[str, Any]:
    """The incident of a job, once there is one."""

    async def found() -> dict[str, Any] | None:
        every = await incidents(server, tenant)
        return next((record for record in every if record["task"].endswith(f":{job}")), None)

    return dict(await until(found, "the incident"))


async def recovered(server: RunningServer, tenant: str, job: str) -> None:
    """Wait until the job's incident is complete: the watcher reports what Slurm shows already at its next look."""

    async def complete() -> bool:
        return bool((await incident_of(server, tenant, job))["state"] == "complete")

    await until(complete, f"the incident of job {job} to be complete")
