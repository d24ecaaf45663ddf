"""Implements `ports.sites.batch.BatchReader` with PBS's own commands; finished jobs come from its history (`qstat -x`), which the server must keep.

Written from the commands' documented JSON; not tested against a real PBS: see the page on batch systems.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from forestay.domain.sites.batch import OVER, BatchId, BatchJob, BatchOutcome, BatchState, slices, told_of
from forestay.ports.commands import CommandResult, Commands, answer_of
from forestay.ports.errors import Transient

_WAITING, _RUNNING, _FINISHED = frozenset("QHWTM"), frozenset("RESUB"), frozenset("FX")
_BY_SIGNAL = 256
"""Added to the signal that ended a job."""
_NOT_KNOWN = ("unknown job id", "no permission")


@dataclass(slots=True)
class PbsReader:
    """One PBS server, as the configuration of this host names it."""

    commands: Commands
    seconds: float = 60.0

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """As the port says. One query for each name: qselect accepts no more."""
        found_jobs: dict[str, tuple[BatchJob, ...]] = {}
        for name in dict.fromkeys(names):
            ran = await self._ask(["qselect", "-x", "-N", name])
            if ran is None or ran.code != 0:
                raise Transient("PBS does not respond")
            ids = ran.out.split()
            if not ids:
                continue
            jobs = await self._jobs(ids)
            if jobs is None or any(identifier not in jobs for identifier in ids):
                raise Transient("PBS does not respond")
            found_jobs[name] = tuple(sorted((jobs[identifier] for identifier in ids), key=_age))
        return found_jobs

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """As the port says."""
        outcomes: dict[BatchId, BatchOutcome] = {}
        for some in slices(jobs):
            outcomes |= told_of(some, await self._jobs(some))
        return outcomes

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says."""
        if not jobs:
            return
        ran = await self.commands.run(["qdel", *dict.fromkeys(jobs)], seconds=self.seconds)
        if ran.code != 0 and not _only_unknown(ran.err, ("unknown job id", "job has finished", "invalid state")):
            raise Transient(" ".join(ran.err.split())[:1000] or f"qdel ended with {ran.code}")

    async def _jobs(self, ids: Sequence[str]) -> dict[str, BatchJob] | None:
        ran = await self._ask(["qstat", "-x", "-f", "-F", "json", *ids])
        if ran is None or (ran.code != 0 and not _only_unknown(ran.err, _NOT_KNOWN)):
            return None
        try:
            document = json.loads(ran.out) if ran.out.strip() else {}
        except ValueError:
            return None
        jobs = {name: _job(name, job) for name, job in document.get("Jobs", {}).items()}
        # The caller may leave out the server's name after the number.
        return {**{name.partition(".")[0]: job for name, job in jobs.items()}, **jobs}

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        return await answer_of(self.commands, command, seconds=self.seconds)


def _only_unknown(words: str, known: Sequence[str]) -> bool:
    lines = [line.lower() for line in words.splitlines() if line.strip()]
    return bool(lines) and all(any(word in line for word in known) for line in lines)


def _job(name: str, fields: Mapping[str, object]) -> BatchJob:
    word = str(fields.get("job_state") or "")
    status = fields.get("Exit_status")
    started = _seconds(fields.get("stime"))
    state = BatchState.UNKNOWN
    if word in _WAITING:
        state = BatchState.WAITING
    elif word in _RUNNING:
        state = BatchState.RUNNING
    elif word in _FINISHED:
        # Without an exit status the node never reported the end, and the job may still run there.
        state = BatchState.LOST if started is not None and not isinstance(status, int) else BatchState.ENDED
    code = status if isinstance(status, int) and state in OVER else None
    hosts = str(fields.get("exec_host") or "")
    runs = fields.get("run_count")
    outcome = BatchOutcome(
        state,
        word=word,
        reason=str(fields.get("comment") or ""),
        exit_code=code if code is not None and code < _BY_SIGNAL else None,
        signal=code - _BY_SIGNAL if code is not None and code > _BY_SIGNAL else None,
        nodes=tuple(dict.fromkeys(part.partition("/")[0] for part in hosts.split("+") if part)),
        restarts=max(0, runs - 1) if isinstance(runs, int) else 0,
        started=started,
        ended=_seconds(fields.get("mtime")) if state in OVER else None,
    )
    return BatchJob(name, str(fields.get("Job_Name") or ""), outcome)


def _seconds(text: object) -> int | None:
    """PBS's local time, such as ``Sun Nov 15 18:39:01 2026``."""
    try:
        return int(datetime.strptime(str(text), "%a %b %d %H:%M:%S %Y").timestamp())  # noqa: DTZ007 - the server's local time
    except ValueError:
        return None


def _age(job: BatchJob) -> tuple[int, str]:
    number = job.id.partition(".")[0].partition("[")[0]
    return (int(number) if number.isdigit() else 0), job.id
