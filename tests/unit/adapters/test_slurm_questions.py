"""How many questions Slurm is asked about many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from forestay.adapters.slurm.batch import SlurmBatch
from forestay.domain.sites.batch import BatchState
from forestay.ports.commands import CommandResult

JOBS = [str(number) for number in range(100_000, 110_000)]


@dataclass
class AnsweringSlurm:
    """Tells of each job that it runs, but for some."""

    states: Mapping[str, str] = field(default_factory=dict)
    restarts: Mapping[str, int] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        jobs = next((word.partition("=")[2].split(",") for word in command if word.startswith("--jobs=")), [])
        assert all(len(word.encode()) < 131_072 for word in command), "longer than Linux lets an argument be"
        self.asked.append((command[0], len(jobs)))
        if command[0] != "squeue":
            return CommandResult(0, "", "")
        form = next(word for word in command if word.startswith("--Format="))
        between = form.partition("JobID:")[2].partition(",")[0]
        lines = (self._line(job).replace("|", between) for job in jobs)
        return CommandResult(0, "\n".join(lines), "")

    def _line(self, job: str) -> str:
        state = self.states.get(job, "RUNNING")
        return f"{job}|{job}|N/A|{state}|None|n1|0|{self.restarts.get(job, 0)}|N/A|N/A|name"


async def test_ten_thousand_jobs_that_run_are_five_questions() -> None:
    slurm = AnsweringSlurm()
    outcomes = await SlurmBatch(slurm, {}).outcome(JOBS)
    assert {outcome.state for outcome in outcomes.values()} == {BatchState.RUNNING}
    assert slurm.asked == [("squeue", 2000)] * 5


@pytest.mark.parametrize(("state", "restarts"), [("FAILED", 0), ("COMPLETED", 0), ("PENDING", 1), ("RUNNING", 2)])
async def test_the_accounting_is_asked_about_jobs_that_have_ended_once_only(state: str, restarts: int) -> None:
    slurm = AnsweringSlurm({JOBS[7]: state}, {JOBS[7]: restarts})
    await SlurmBatch(slurm, {}).outcome(JOBS[:100])
    assert slurm.asked[:2] == [("squeue", 100), ("sacct", 1)]
