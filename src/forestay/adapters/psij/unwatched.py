"""PSI/J's executors without their status polling: they render a script, submit it and cancel it, and send the batch system no other request.

PSI/J polls the queue for every job that it submitted and draws conclusions from absence: a job that left the queue counts as completed, and
when the scheduler is down for half a minute all count as failed. That is wrong for pilots; and the polls would add to our own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from psij import Job, Launcher
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutor, BatchSchedulerExecutorConfig
from psij.executors.batch.lsf import LsfJobExecutor
from psij.executors.batch.pbs import PBSJobExecutor
from psij.executors.batch.slurm import SlurmJobExecutor


class _NoPolls:
    """Replaces PSI/J's thread that polls the queue."""

    def register_job(self, job: Job) -> None:
        """Nothing is watched."""


class InPlace(Launcher):
    """Replaces the script's process by the pilot: the batch system gets its exit code, and signals reach the pilot.

    PSI/J's own launchers remain between the two, and their scripts exit with 0 whatever the job's result.
    """

    def get_launch_command(self, job: Job) -> list[str]:
        spec = job.spec
        assert spec is not None  # noqa: S101 - we made it
        assert spec.executable is not None  # noqa: S101
        where = str(spec.stdout_path) if spec.stdout_path is not None else "/dev/null"
        command = [str(spec.executable), *(spec.arguments or [])]
        return ["exec", "/bin/sh", "-c", 'exec "$@" >"$0" 2>&1', where, *command]

    def is_launcher_failure(self, output: str) -> bool:
        return False

    def get_launcher_failure_message(self, output: str) -> str:
        return ""


class Unwatched(BatchSchedulerExecutor):
    """An executor for one submission or one cancellation."""

    _NAME_: str
    """PSI/J's name of it, and its folder."""
    never_again: tuple[str, ...] = ()
    """The options that keep this batch system from starting a job a second time on its own."""
    name_option: str = ""
    """The option for the job's name, which PSI/J's scripts leave out, and by which a job is found again."""
    options: tuple[str, ...] = ()
    job_name: str = ""
    environment: Mapping[str, str] = {}
    seconds: float = 60.0

    def _start_queue_poll_thread(self) -> _NoPolls:  # type: ignore[override]
        return _NoPolls()

    def _get_launcher_from_job(self, job: Job) -> Launcher:
        return InPlace(self.config)

    def get_submit_command(self, job: Job, submit_file_path: Path) -> list[str]:
        program, *rest = super().get_submit_command(job, submit_file_path)  # type: ignore[safe-super]
        # The last option counts: no option of a site can make the batch system start a pilot twice.
        return [program, *self.options, *self.never_again, self.name_option, self.job_name, *rest]

    def _run_command(self, cmd: list[str]) -> str:
        """Run a command with its own environment and a timeout."""
        ran = subprocess.run(  # noqa: S603 - the batch system's own commands, without a shell
            cmd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=dict(self.environment),
            timeout=self.seconds,
            check=False,
        )
        if ran.returncode != 0:
            raise subprocess.CalledProcessError(ran.returncode, cmd[0], output=ran.stderr or ran.stdout)
        return str(ran.stdout)


class UnwatchedSlurm(Unwatched, SlurmJobExecutor):
    _NAME_ = "slurm"
    never_again = ("--no-requeue",)
    name_option = "--job-name"


class UnwatchedPbs(Unwatched, PBSJobExecutor):
    _NAME_ = "pbs"
    never_again = ("-r", "n")
    name_option = "-N"


class UnwatchedLsf(Unwatched, LsfJobExecutor):
    _NAME_ = "lsf"
    never_again = ("-rn",)
    name_option = "-J"


EXECUTORS: Mapping[str, type[Unwatched]] = {"slurm": UnwatchedSlurm, "pbs": UnwatchedPbs, "lsf": UnwatchedLsf}


def executor(kind: str, folder: Path) -> Unwatched:
    """A new executor that keeps its files in that folder."""
    return EXECUTORS[kind](url=None, config=BatchSchedulerExecutorConfig(work_directory=folder))
