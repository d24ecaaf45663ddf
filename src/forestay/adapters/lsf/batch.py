"""Implements `ports.sites.batch.BatchReader` with LSF's own commands; bhist still knows by name what bjobs has forgotten.

Written from the commands' documented output; not tested against a real LSF: see the page on batch systems.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from forestay.domain.sites.batch import FORGOTTEN, OVER, BatchId, BatchJob, BatchOutcome, BatchState, slices, told_of
from forestay.ports.commands import CommandResult, Commands, answer_of
from forestay.ports.errors import Transient

FIELDS = "jobid stat exit_code exit_reason exec_host pend_reason job_name"
_STATES = {
    **dict.fromkeys(("PEND", "PSUSP", "WAIT", "PROV"), BatchState.WAITING),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP"), BatchState.RUNNING),
    **dict.fromkeys(("DONE", "EXIT"), BatchState.ENDED),
    "ZOMBI": BatchState.LOST,
    # mbatchd cannot reach the host: the state may be any of the others.
    "UNKWN": BatchState.UNKNOWN,
}
_SIGNALS = 128
_NONE = ("is not found", "no matching job found", "no unfinished job found", "no job found")
_HISTORY_ID = re.compile(r"^(\d+)\s", re.MULTILINE)


@dataclass(slots=True)
class LsfReader:
    """One LSF cluster, as the environment of this process names it."""

    commands: Commands
    seconds: float = 60.0

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """As the port says. One query for each name; bhist is called for those that bjobs does not know."""
        found_jobs: dict[str, tuple[BatchJob, ...]] = {}
        for name in dict.fromkeys(names):
            returned_jobs = await self._jobs(["-J", name])
            if returned_jobs is None:
                raise Transient("LSF does not respond")
            jobs = [replace(job, name=name) for job in returned_jobs.values()] or await self._history(name)
            if jobs:
                found_jobs[name] = tuple(sorted(jobs, key=lambda job: int(job.id)))
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
        ran = await self.commands.run(["bkill", *dict.fromkeys(jobs)], seconds=self.seconds)
        words = (ran.out + ran.err).lower()
        if ran.code != 0 and not any(word in words for word in ("no matching job", "already finished", "is not found")):
            raise Transient(" ".join(ran.err.split())[:1000] or f"bkill ended with {ran.code}")

    async def _jobs(self, which: Sequence[str]) -> dict[str, BatchJob] | None:
        ran = await self._ask(["bjobs", "-u", "all", "-a", "-json", "-o", FIELDS, *which])
        if ran is None:
            return None
        try:
            records = json.loads(ran.out).get("RECORDS", []) if ran.out.strip() else []
        except ValueError:
            return None
        if not records and ran.code != 0 and not any(phrase in ran.err.lower() for phrase in _NONE):
            return None
        jobs = (_job(phrase) for phrase in records if phrase.get("STAT"))
        return {phrase.id: phrase for phrase in jobs}

    async def _history(self, name: str) -> list[BatchJob]:
        ran = await self._ask(["bhist", "-u", "all", "-a", "-n", "0", "-J", name])
        if ran is None or (ran.code != 0 and not any(phrase in (ran.out + ran.err).lower() for phrase in _NONE)):
            raise Transient("LSF's history does not respond")
        return [BatchJob(phrase, name, FORGOTTEN) for phrase in _HISTORY_ID.findall(ran.out)]

    async def _ask(self, command: Sequence[str]) -> CommandResult | None:
        return await answer_of(self.commands, command, seconds=self.seconds)


def _job(fields: Mapping[str, str]) -> BatchJob:
    word = fields["STAT"]
    state = _STATES.get(word, BatchState.UNKNOWN)
    text = fields.get("EXIT_CODE", "")
    code = int(text) if text.isdigit() else 0 if word == "DONE" else None
    by_signal = code is not None and code > _SIGNALS
    over = state in OVER
    hosts = [part.rpartition("*")[2] for part in fields.get("EXEC_HOST", "").split(":") if part and part != "-"]
    reason = fields.get("EXIT_REASON") or fields.get("PEND_REASON") or ""
    outcome = BatchOutcome(
        state,
        word=word,
        reason="" if reason == "-" else reason,
        exit_code=code if over and not by_signal else None,
        signal=code - _SIGNALS if over and by_signal and code is not None else None,
        nodes=tuple(dict.fromkeys(hosts)),
    )
    return BatchJob(fields["JOBID"], fields.get("JOB_NAME", ""), outcome)
