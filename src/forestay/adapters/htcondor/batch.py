"""Fills `ports.sites.batch.BatchReader` with an HTCondor's own commands; the queue by condor_q, what left it by condor_history.

Read from the commands' documented JSON. No HTCondor was at hand to hold it against: see the page on batch systems.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.sites.batch import FORGOTTEN, OVER, SILENT, BatchId, BatchJob, BatchOutcome, BatchState, slices
from forestay.ports.commands import CommandResult, Commands, answer_of
from forestay.ports.errors import Permanent, Transient

ATTRIBUTES = (
    "ClusterId", "ProcId", "JobBatchName", "JobStatus", "HoldReason", "RemoveReason", "ExitCode", "ExitSignal", "ExitBySignal",
    "RemoteHost", "LastRemoteHost", "NumJobStarts", "JobStartDate", "CompletionDate", "EnteredCurrentStatus",
)  # fmt: skip
_STATES = {
    1: (BatchState.WAITING, "IDLE"),
    2: (BatchState.RUNNING, "RUNNING"),
    # In the queue it is still being taken off its machine; only in the history it is gone.
    3: (BatchState.RUNNING, "REMOVED"),
    4: (BatchState.ENDED, "COMPLETED"),
    5: (BatchState.WAITING, "HELD"),
    6: (BatchState.RUNNING, "TRANSFERRING_OUTPUT"),
    7: (BatchState.RUNNING, "SUSPENDED"),
}
_PLAIN = re.compile(r"^[A-Za-z0-9._:-]+$")


@dataclass(slots=True)
class HtcondorReader:
    """One schedd, as the configuration of this host names it."""

    commands: Commands
    seconds: float = 60.0

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
            ran = await self.commands.run(["condor_rm", *some], seconds=self.seconds)
            if ran.code != 0 and "not found" not in (ran.out + ran.err).lower():
                raise Transient(" ".join(ran.err.split())[:1000] or f"condor_rm ended with {ran.code}")

    async def _both(self, which: Sequence[str]) -> tuple[dict[str, BatchJob] | None, dict[str, BatchJob] | None]:
        """The queue first: what leaves it in between is in the history by then."""
        form = ["-json", "-attributes", ",".join(ATTRIBUTES)]
        queue = _read(await self._ask(["condor_q", "-allusers", *form, *which]), over=False)
        history = _read(await self._ask(["condor_history", *form, *which]), over=True)
        return queue, history

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        return await answer_of(self.commands, command, seconds=self.seconds)


def _read(ran: CommandResult | None, *, over: bool) -> dict[str, BatchJob] | None:
    """The jobs of one answer by id; None for no answer. Nothing at all is printed where there are none."""
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
    """Only plain names: they stand in an expression."""
    wrong = [name for name in names if not _PLAIN.match(name)]
    if wrong:
        raise Permanent(f"invalid batch job name: {wrong[0]!r}")
    return slices(names)
