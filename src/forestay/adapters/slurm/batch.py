"""Implements `ports.sites.batch.BatchSystem` with Slurm's own commands; squeue and sacct are called for many jobs at once."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from forestay.adapters.slurm.controllers import controllers, why_unreached
from forestay.adapters.slurm.reading import (
    ACCOUNTING_FIELDS,
    QUEUE_FIELDS,
    joined,
    oldest_first,
    read_accounting,
    read_nodes,
    read_queue,
    with_nodes,
)
from forestay.adapters.slurm.words import LATER, NEVER, NOT_SENT, PERHAPS_SENT, one_line, said, separator
from forestay.domain.sites.batch import (
    BatchId,
    BatchJob,
    BatchOutcome,
    BatchState,
    PilotJob,
    SubmitRefusal,
    SubmitRefused,
    slices,
)
from forestay.ports.commands import CommandResult, Commands, answer_of
from forestay.ports.errors import Transient

TAKEN_ALONG = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
"""The variables of the agent's environment that a pilot gets; others may contain secrets."""
MOST_IDS = 2000
"""Jobs of one squeue or sacct call. Each squeue reads all jobs from the controller, so fewer calls are better; beyond this, two sacct calls are faster than one."""
_ID = re.compile(r"^(\d+)(?:;\S*)?$")
_LAG = re.compile(r"DBD Agent queue size:\s*(\d+)")


@dataclass(slots=True)
class SlurmBatch:
    """One Slurm, as its configuration on this host names it."""

    commands: Commands
    environment: Mapping[str, str]
    """The environment of the commands; Slurm's own variables, except for the location of its configuration, are removed: each would act as an option."""
    look_back: int = 14
    """Days that a search for a job by its name goes back."""
    seconds: float = 60.0
    """Seconds for one command; longer than Slurm's own timeout, so that it reports the error itself."""
    _own: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._own = own_environment(self.environment)

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """As the port says, by sbatch with the script on its standard input."""
        environment = {**self._own, **job.environment}
        script = f"#!/bin/sh\nexec {shlex.join(job.command)}\n"
        ran = await self.run(_submission(job), environment=environment, stdin=script)
        if ran.code == 0:
            words = ran.out.strip().splitlines()
            match = _ID.match(words[-1]) if words else None
            if match is None:
                raise Transient(f"sbatch returned no job id: {one_line(ran.out)}")
            return match[1]
        return await self.refusal(ran.err or ran.out)

    async def refusal(self, words: str) -> SubmitRefused:
        """The meaning of an error of sbatch. `Transient` when the job may be queued nevertheless. Also for callers that run sbatch themselves."""
        text = one_line(words)
        if said(words, NOT_SENT):
            return SubmitRefused(await why_unreached(controllers(self._own)), text)
        if said(words, PERHAPS_SENT):
            raise Transient(text)
        return SubmitRefused(SubmitRefusal.REFUSED, text, later=said(words, LATER) or not said(words, NEVER))

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says; one scancel for many."""
        for some in slices(jobs):
            ran = await self.run(["scancel", "--quiet", *some])
            if ran.code != 0 and not said(ran.err, ("invalid job id", "already completing or completed")):
                raise Transient(one_line(ran.err) or f"scancel ended with {ran.code}")

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """As the port says. The queue first: jobs that leave it in between are in the accounting by then."""
        jobs: dict[str, dict[str, BatchJob]] = {}
        for some in slices(names):
            wanted = set(some)
            queue = await self._queue(["--name=" + ",".join(some)])
            accounting = await self._accounting([f"--name={','.join(some)}", f"--starttime=now-{self.look_back}days"])
            if queue is None or accounting is None:
                raise Transient(
                    "Slurm's queue does not respond" if queue is None else "Slurm's accounting does not respond"
                )
            for other_job in {**accounting, **queue}:
                job = _one(other_job, queue, accounting)
                if job.name in wanted:
                    jobs.setdefault(job.name, {})[job.id] = job
            if wanted - jobs.keys():
                await self._no_lag()
        return {name: oldest_first(jobs.values()) for name, jobs in jobs.items()}

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """As the port says."""
        outcomes: dict[BatchId, BatchOutcome] = {}
        for some in slices(jobs, MOST_IDS):
            queue = await self._queue([f"--jobs={','.join(some)}"])
            # For a job that waits or runs for the first time the accounting has no further information.
            older = [name for name in some if queue is None or not _first_start(queue.get(name))]
            accounting = await self._accounting([f"--jobs={','.join(older)}"]) if older else {}
            for name in some:
                outcomes[name] = joined(
                    queue[name].outcome if queue and name in queue else None,
                    accounting[name].outcome if accounting and name in accounting else None,
                    queue_answers=queue is not None,
                    accounting_answers=accounting is not None,
                )
        return await self._with_nodes(outcomes)

    async def _with_nodes(self, outcomes: dict[BatchId, BatchOutcome]) -> dict[BatchId, BatchOutcome]:
        ill = {
            node
            for outcome in outcomes.values()
            if outcome.state is BatchState.LOST or (outcome.state is BatchState.ENDED and outcome.word != "COMPLETED")
            for node in outcome.nodes
        }
        if not ill:
            return outcomes
        ran = await self._ask(
            ["sinfo", "--noheader", "--Node", f"--nodes={','.join(sorted(ill))}", "--format=%N|%T|%E"]
        )
        nodes = read_nodes(ran.out) if ran is not None and ran.code == 0 else {}
        return {name: with_nodes(outcome, nodes) for name, outcome in outcomes.items()}

    async def _queue(self, which: Sequence[str]) -> dict[str, BatchJob] | None:
        """The jobs that the controller knows; None when it does not answer."""
        between = separator()
        form = f"--Format={QUEUE_FIELDS.replace('|', between)}"
        ran = await self._ask(["squeue", "--noheader", "--states=all", form, *which])
        if ran is None or (ran.code != 0 and "invalid job id" not in ran.err.lower()):
            return None
        return read_queue(ran.out, between)

    async def _accounting(self, which: Sequence[str]) -> dict[str, BatchJob] | None:
        """The jobs that the accounting knows, each start of them; None when it does not answer."""
        between = separator()
        form = ["--noheader", "--parsable2", f"--delimiter={between}", f"--format={ACCOUNTING_FIELDS}"]
        ran = await self._ask(["sacct", *form, "--allocations", "--duplicates", *which])
        # Slurm's accounting commands sometimes exit with 0 when their database is down.
        if ran is None or ran.code != 0 or "error:" in ran.err.lower() or "disabled" in ran.err.lower():
            return None
        return read_accounting(ran.out, between)

    async def _no_lag(self) -> None:
        """Raise `Transient` while the controller has unsent records for the accounting: a job may be in neither."""
        ran = await self._ask(["sdiag"])
        match = _LAG.search(ran.out) if ran is not None else None
        if match is not None and int(match[1]) > 0:
            raise Transient(f"Slurm's accounting lags behind by {match[1]} messages")

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        """Run a read-only command; None when it did not finish."""
        return await answer_of(self.commands, command, environment=self._own, seconds=self.seconds)

    async def run(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> CommandResult:
        """Run one of Slurm's commands in the prepared environment."""
        return await self.commands.run(command, environment=environment or self._own, stdin=stdin, seconds=self.seconds)


def _first_start(job: BatchJob | None) -> bool:
    if job is None or job.outcome.restarts:
        return False
    return job.outcome.state in (BatchState.WAITING, BatchState.RUNNING)


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of Slurm's commands: ours without the variables that act as options."""
    options = ("SBATCH_", "SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
    kept = {key: value for key, value in environment.items() if not key.startswith(options)}
    if "SLURM_CONF" in environment:
        kept["SLURM_CONF"] = environment["SLURM_CONF"]
    # Times are parsed as local times, independently of the formats that a locale or a site may have chosen.
    return {**kept, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}


def _submission(job: PilotJob) -> list[str]:
    exported = dict.fromkeys((*TAKEN_ALONG, *job.environment))  # names only: arguments must not show the values
    options = [
        f"--job-name={job.name}",
        f"--chdir={job.directory}",
        f"--output={job.output or '/dev/null'}",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={job.cpus}",
        f"--export={','.join(exported)}",
    ]
    if job.memory is not None:
        options.append(f"--mem={-(-job.memory // 2**20)}M")
    if job.wall is not None:
        options.append(f"--time={-(-job.wall // 60)}")
    if job.queue is not None:
        options.append(f"--partition={job.queue}")
    if job.account is not None:
        options.append(f"--account={job.account}")
    # Our options come last, because the last one counts: no option of a site can make Slurm start a pilot twice.
    return ["sbatch", *options, *job.options, "--parsable", "--no-requeue"]


def _one(job: str, queue: Mapping[str, BatchJob], accounting: Mapping[str, BatchJob]) -> BatchJob:
    newest = queue.get(job) or accounting[job]
    before = accounting.get(job)
    now = queue.get(job)
    outcome = joined(
        now.outcome if now else None, before.outcome if before else None, queue_answers=True, accounting_answers=True
    )
    return BatchJob(job, newest.name, outcome)
