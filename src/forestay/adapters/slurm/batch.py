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
"""What a pilot gets of the agent's own environment; nothing else, for there may be secrets in it."""
MOST_IDS = 2000
"""Jobs that one squeue or sacct is asked about. Each squeue gets all jobs from the controller, so that fewer are better; beyond that sacct takes longer than twice for half."""
_ID = re.compile(r"^(\d+)(?:;\S*)?$")
_LAG = re.compile(r"DBD Agent queue size:\s*(\d+)")


@dataclass(slots=True)
class SlurmBatch:
    """One Slurm, as its configuration on this host names it."""

    commands: Commands
    environment: Mapping[str, str]
    """Of the commands; Slurm's own variables in it, but for the place of its configuration, are not passed on: each would be an option."""
    look_back: int = 14
    """Days that a job is looked for by its name."""
    seconds: float = 60.0
    """For one command; longer than Slurm's own patience, so that it says itself what is wrong."""
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
        """What sbatch's complaint means. `Transient` when the job may be queued in spite of it. For those who call sbatch themselves as well."""
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
        """As the port says. The queue first: what leaves it in between is in the accounting by then."""
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
            # Of a job that waits or runs for the first time the accounting knows no more.
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
        # Slurm's accounting commands end with 0 now and then when their database is down.
        if ran is None or ran.code != 0 or "error:" in ran.err.lower() or "disabled" in ran.err.lower():
            return None
        return read_accounting(ran.out, between)

    async def _no_lag(self) -> None:
        """Raise `Transient` while the controller still has something to tell the accounting: a job may be in neither."""
        ran = await self._ask(["sdiag"])
        match = _LAG.search(ran.out) if ran is not None else None
        if match is not None and int(match[1]) > 0:
            raise Transient(f"Slurm's accounting lags behind by {match[1]} messages")

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        """Run a command that only reads; None when it came to no end."""
        return await answer_of(self.commands, command, environment=self._own, seconds=self.seconds)

    async def run(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> CommandResult:
        """One of Slurm's commands, in the environment that they get."""
        return await self.commands.run(command, environment=environment or self._own, stdin=stdin, seconds=self.seconds)


def _first_start(job: BatchJob | None) -> bool:
    if job is None or job.outcome.restarts:
        return False
    return job.outcome.state in (BatchState.WAITING, BatchState.RUNNING)


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of Slurm's commands: ours without what they would take for options."""
    options = ("SBATCH_", "SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_")
    kept = {key: value for key, value in environment.items() if not key.startswith(options)}
    if "SLURM_CONF" in environment:
        kept["SLURM_CONF"] = environment["SLURM_CONF"]
    # Times are read as local ones, without the words that a locale or a site may have chosen.
    return {**kept, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}


def _submission(job: PilotJob) -> list[str]:
    exported = dict.fromkeys((*TAKEN_ALONG, *job.environment))  # names only: the values do not show in the arguments
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
    # Ours last, for the last one counts: no option of a site makes Slurm start a pilot twice.
    return ["sbatch", *options, *job.options, "--parsable", "--no-requeue"]


def _one(job: str, queue: Mapping[str, BatchJob], accounting: Mapping[str, BatchJob]) -> BatchJob:
    newest = queue.get(job) or accounting[job]
    before = accounting.get(job)
    now = queue.get(job)
    outcome = joined(
        now.outcome if now else None, before.outcome if before else None, queue_answers=True, accounting_answers=True
    )
    return BatchJob(job, newest.name, outcome)
