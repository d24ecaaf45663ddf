"""Implements `ports.sites.batch.BatchSystem` with HTCondor's own commands: condor_q for the queue, condor_history for what has left it.

A submit description goes in by standard input, so that nothing of it shows in a command line. Jobs and the agent share a file system.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.sites.batch import (
    FORGOTTEN,
    OVER,
    SILENT,
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
from forestay.ports.errors import Permanent, Transient

ATTRIBUTES = (
    "ClusterId", "ProcId", "JobBatchName", "JobStatus", "HoldReason", "RemoveReason", "ExitCode", "ExitSignal", "ExitBySignal",
    "RemoteHost", "LastRemoteHost", "NumJobStarts", "JobStartDate", "CompletionDate", "EnteredCurrentStatus",
)  # fmt: skip
_STATES = {
    1: (BatchState.WAITING, "IDLE"),
    2: (BatchState.RUNNING, "RUNNING"),
    # In the queue it is still being removed from its machine; it is gone only when it is in the history.
    3: (BatchState.RUNNING, "REMOVED"),
    4: (BatchState.ENDED, "COMPLETED"),
    5: (BatchState.WAITING, "HELD"),
    6: (BatchState.RUNNING, "TRANSFERRING_OUTPUT"),
    7: (BatchState.RUNNING, "SUSPENDED"),
}
_PLAIN = re.compile(r"^[A-Za-z0-9._:-]+$")
TAKEN_ALONG = "PATH,HOME,USER,LOGNAME,LANG,TZ"
"""The variables of the agent's environment that a pilot gets; others may contain secrets."""
ONCE = "NumJobStarts > 0 && (JobStatus == 1 || JobStatus == 5)"
"""HTCondor starts an evicted job again and keeps a held one: a pilot is removed instead."""
_DOWN = ("failed to connect", "can't find address", "unable to locate", "can't connect", "failed to contact")
_PERHAPS = ("failed to commit", "failed to send", "failed to set", "communication error", "timed out", "timeout")
_LATER = ("limit", "maximum", "max_jobs", "quota", "disk")
_MACRO = re.compile(r"\$\w*\(")
_QUEUED = re.compile(r"^(\d+)\.(\d+) - ")


@dataclass(slots=True)
class HtcondorBatch:
    """One schedd, as the configuration of this host names it."""

    commands: Commands
    seconds: float = 60.0
    environment: Mapping[str, str] | None = None

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """As the port says. `options` come before our own settings, which therefore take precedence."""
        if not _PLAIN.match(job.name):
            raise Permanent(f"invalid batch job name: {job.name!r}")
        if job.queue is not None:
            raise Permanent(
                "HTCondor has no queues: remove the size's `queue`, and choose hosts by its options, "
                'such as ["-append", "requirements = TARGET.Site == \\"hall\\""]'
            )
        own = ["-batch-name", job.name, "-append", f"periodic_remove = {ONCE}"]
        ran = await self._run(["condor_submit", "-terse", *job.options, *own], stdin=_description(job))
        words = " ".join((ran.err or ran.out).split())[:2000]
        queued = _QUEUED.match(ran.out) if ran.code == 0 else None
        if queued is not None:
            return f"{queued[1]}.{queued[2]}"
        if ran.code == 0:
            raise Transient("condor_submit returned no job id")
        if _said(words, _DOWN):
            return SubmitRefused(SubmitRefusal.SCHEDULER_DOWN, words)
        if _said(words, _PERHAPS):
            raise Transient(words)
        return SubmitRefused(SubmitRefusal.REFUSED, words, later=_said(words, _LATER))

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """As the port says."""
        jobs: dict[str, dict[str, BatchJob]] = {}
        for some in _slices(names):
            wanted = ",".join(f'"{name}"' for name in some)
            queue, history = await self._both(["-constraint", f"member(JobBatchName, {{{wanted}}})"])
            if queue is None or history is None:
                raise Transient("HTCondor does not respond")
            for name in {**history, **queue}.values():
                jobs.setdefault(name.name, {})[name.id] = name
        return {name: tuple(sorted(jobs.values(), key=_age)) for name, jobs in jobs.items()}

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """As the port says."""
        outcomes: dict[BatchId, BatchOutcome] = {}
        for some in _slices(jobs):
            queue, history = await self._both(list(some))
            for job in some:
                known = (queue or {}).get(_whole(job)) or (history or {}).get(_whole(job))
                silent = FORGOTTEN if queue is not None and history is not None else SILENT
                outcomes[job] = known.outcome if known is not None else silent
        return outcomes

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says."""
        for some in _slices(jobs):
            ran = await self._run(["condor_rm", *some])
            if ran.code != 0 and not _said(ran.out + ran.err, ("couldn't find/remove", "not found")):
                raise Transient(" ".join(ran.err.split())[:1000] or f"condor_rm ended with {ran.code}")

    async def _both(self, which: Sequence[str]) -> tuple[dict[str, BatchJob] | None, dict[str, BatchJob] | None]:
        """The queue first: jobs that leave it in between are in the history by then."""
        form = ["-json", "-attributes", ",".join(ATTRIBUTES)]
        queue = _read(await self._ask(["condor_q", "-allusers", *form, *which]), over=False)
        history = _read(await self._ask(["condor_history", *form, *which]), over=True)
        return queue, history

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        return await answer_of(self.commands, command, environment=self.environment, seconds=self.seconds)

    async def _run(self, command: Sequence[str], stdin: str = "") -> CommandResult:
        return await self.commands.run(command, environment=self.environment, stdin=stdin, seconds=self.seconds)


def _description(job: PilotJob) -> str:
    """The submit description. It runs the pilot through a shell: HTCondor would search a bare `python3` in the job's folder."""
    command = ["-c", 'exec "$@" >"$0" 2>&1', job.output or "/dev/null", *job.command]
    lines = {
        "universe": "vanilla",
        "executable": "/bin/sh",
        "transfer_executable": "false",
        "should_transfer_files": "NO",
        "arguments": _words(command),
        "initialdir": job.directory,
        "getenv": TAKEN_ALONG,
        "environment": _words([f"{name}={value}" for name, value in job.environment.items()]),
        "request_cpus": str(job.cpus),
        "requirements": "NumJobStarts =?= 0",
    }
    if job.memory is not None:
        lines["request_memory"] = str(-(-job.memory // (1 << 20)))
    if job.wall is not None:
        lines["allowed_execute_duration"] = str(job.wall)
    if job.account is not None:
        lines["accounting_group"] = job.account
    if any("\n" in value or "\r" in value for value in lines.values()):
        raise Permanent("a submit description of HTCondor cannot hold a line break")
    return "".join(f"{name} = {value}\n" for name, value in lines.items()) + "queue\n"


def _words(words: Sequence[str]) -> str:
    """Arguments in HTCondor's quoting: each word in single quotes."""
    quoted = " ".join("'" + word.replace("'", "''") + "'" for word in words)
    if _MACRO.search(quoted):
        raise Permanent(f"HTCondor would expand a part of this itself: {quoted}")
    return '"' + quoted.replace('"', '""') + '"'


def _said(words: str, any_of: Sequence[str]) -> bool:
    return any(word in words.lower() for word in any_of)


def _read(ran: CommandResult | None, *, over: bool) -> dict[str, BatchJob] | None:
    """The jobs of one output by id; None for no answer. The output is empty where there are none."""
    if ran is None or ran.code != 0:
        return None
    try:
        document = json.loads(ran.out) if ran.out.strip() else []
    except ValueError:
        return None
    jobs = (_job(record, over=over) for record in document if isinstance(record, dict))
    return {job.id: job for job in jobs if job is not None}


def _job(fields: Mapping[str, object], *, over: bool) -> BatchJob | None:
    cluster, proc, status = fields.get("ClusterId"), fields.get("ProcId"), fields.get("JobStatus")
    if not isinstance(cluster, int) or not isinstance(proc, int) or not isinstance(status, int):
        return None
    state, word = _STATES.get(status, (BatchState.UNKNOWN, str(status)))
    if over:
        state = BatchState.ENDED if status in (3, 4) else BatchState.UNKNOWN
    by_signal = bool(fields.get("ExitBySignal"))
    host = str(fields.get("RemoteHost") or fields.get("LastRemoteHost") or "")
    outcome = BatchOutcome(
        state,
        word=word,
        reason=str(fields.get("HoldReason") or fields.get("RemoveReason") or ""),
        exit_code=_number(fields.get("ExitCode")) if state in OVER and not by_signal else None,
        signal=_number(fields.get("ExitSignal")) if state in OVER and by_signal else None,
        nodes=(host.rpartition("@")[2],) if host else (),
        restarts=max(0, (_number(fields.get("NumJobStarts")) or 0) - 1),
        started=_number(fields.get("JobStartDate")),
        ended=(_number(fields.get("CompletionDate")) or _number(fields.get("EnteredCurrentStatus")))
        if state in OVER
        else None,
    )
    return BatchJob(f"{cluster}.{proc}", str(fields.get("JobBatchName") or ""), outcome)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(job: str) -> str:
    return job if "." in job else f"{job}.0"


def _age(job: BatchJob) -> tuple[int, int]:
    cluster, _, proc = job.id.partition(".")
    return int(cluster), int(proc)


def _slices(names: Collection[str]) -> list[tuple[str, ...]]:
    """The names in slices; only plain names, because they are part of an expression."""
    wrong = [name for name in names if not _PLAIN.match(name)]
    if wrong:
        raise Permanent(f"invalid batch job name: {wrong[0]!r}")
    return slices(names)
