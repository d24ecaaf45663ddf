"""Submits pilots to Slurm as the users whose jobs they run, by `forestay-launch`; implements `ports.sites.batch.BatchSubmitter`.

The launcher runs as root and takes one request on its standard input (`deploy/launcher`). What it submits, with which options and
in which partition, is in its own configuration; a request says for whom, of which size, and under which launch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.adapters.slurm.words import one_line, said
from forestay.domain.sites.batch import BatchId, PilotJob, SubmitRefusal, SubmitRefused, slices
from forestay.domain.sites.launch import NAME
from forestay.ports.commands import CommandResult
from forestay.ports.errors import Permanent, Transient

SECRET = "FORESTAY_ENROLMENT"  # noqa: S105 - the name of the variable
SECONDS = 90.0
"""The launcher ends the batch system's command after 60; nobody else here may end root's processes."""
REFUSED = "forestay-launch: refused:"
_ID = re.compile(r"^(\d+)(?:;\S*)?$")
_LISTED = re.compile(r"^(\d+)\|([^|]+)\|(.+)$")


@dataclass(slots=True)
class OwnUsersSlurm:
    """One Slurm, in which pilots are jobs of the users for whom they run."""

    slurm: SlurmBatch
    launcher: Sequence[str]
    """The command that starts the launcher as root."""

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """As the port says; the secret comes in the job's environment and goes to the launcher's standard input."""
        ran = await self._launch(
            act="submit",
            user=job.user,
            size=job.size,
            launch=job.name.removeprefix(NAME),
            secret=job.environment.get(SECRET, ""),
        )
        if ran.code == 0:
            match = _ID.match(one_line(ran.out).strip())
            if match is None:
                raise Transient(f"sbatch returned no job id: {one_line(ran.out)}")
            return match[1]
        if REFUSED in ran.err:
            return SubmitRefused(SubmitRefusal.REFUSED, one_line(ran.err))
        return await self.slurm.refusal(ran.err or ran.out)

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says. Slurm itself tells whose they are, of those that are not over; the user's scancel ends only what has the name of a launch."""
        for some in slices(jobs):
            listed = await self.slurm.run(["squeue", "--noheader", "--format=%i|%u|%j", f"--jobs={','.join(some)}"])
            if listed.code != 0 and "invalid job id" not in listed.err.lower():
                raise Transient(one_line(listed.err) or f"squeue ended with {listed.code}")
            for line in listed.out.splitlines():
                match = _LISTED.match(line.strip())
                if match is None or not match[3].startswith(NAME):
                    continue
                ran = await self._launch(act="cancel", user=match[2], launch=match[3].removeprefix(NAME), job=match[1])
                if ran.code != 0 and not said(ran.err, ("invalid job id", "already completing or completed")):
                    raise Transient(one_line(ran.err) or f"job {match[1]} could not be cancelled")

    async def check(self) -> None:
        """Whether the launcher may be started: it refuses an empty request. `Permanent` says what is in the way."""
        ran = await self._launch()
        if REFUSED not in ran.err:
            raise Permanent(one_line(ran.err) or f"the launcher ended with {ran.code}")

    async def _launch(self, **request: str) -> CommandResult:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        ran = await self.slurm.commands.run(
            self.launcher, environment=environment, stdin=json.dumps(request), seconds=SECONDS
        )
        if ran.code < 0 or ran.code > 128:
            raise Transient(f"the launcher was ended: {one_line(ran.err)}")
        if ran.err.startswith("sudo:"):
            raise Permanent(f"the launcher may not be started ({one_line(ran.err)}): is its sudo rule installed?")
        return ran
