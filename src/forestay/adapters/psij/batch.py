"""Submits and cancels pilot jobs through PSI/J; implements `ports.sites.batch.BatchSubmitter`.

The script that PSI/J renders contains the pilot's command and no secret. The pilot's environment comes from the
environment of the submit command, which the batch system passes on without showing it.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path

from psij import InvalidJobException, Job, JobAttributes, JobSpec, ResourceSpecV1, SubmitException

from forestay.adapters.psij.unwatched import EXECUTORS, Unwatched, executor
from forestay.domain.sites.batch import BatchId, PilotJob, SubmitRefusal, SubmitRefused
from forestay.ports.errors import Permanent, Transient

TAKEN_ALONG = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "SLURM_CONF", "PBS_CONF_FILE", "LSF_ENVDIR")
"""The variables of the agent's environment that the submit command, and so the pilot, gets; others may contain secrets."""
Refusing = Callable[[str], Awaitable[SubmitRefused]]


async def refused(words: str) -> SubmitRefused:
    """The meaning of an error where no more is known."""
    return SubmitRefused(SubmitRefusal.REFUSED, " ".join(words.split())[:2000])


class PsijSubmitter:
    """A batch system of a kind that PSI/J supports."""

    def __init__(
        self,
        kind: str,
        *,
        folder: Path,
        environment: Mapping[str, str],
        refusal: Refusing = refused,
        seconds: float = 60.0,
    ) -> None:
        """`folder` is on a file system that the nodes share; PSI/J keeps its scripts there. `refusal` reads the submit command's complaints."""
        if kind not in EXECUTORS:
            raise Permanent(f"pilots can be submitted to {', '.join(EXECUTORS)}, not to {kind}")
        if any(letter.isspace() or letter in "\"'$`\\" for letter in str(folder)):
            raise Permanent(f"PSI/J cannot use a folder with blanks or quotes in its name: {folder}")
        self._kind = kind
        self._folder = folder
        self._environment = {name: environment[name] for name in TAKEN_ALONG if name in environment}
        self._refusal = refusal
        self._seconds = seconds

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """As the port says."""
        own = self._executor()
        own.options, own.job_name = job.options, job.name
        own.environment = {**self._environment, **job.environment}
        made = _job(job)
        try:
            await asyncio.to_thread(own.submit, made)
        except SubmitException as error:
            return await self._refusal(str(error))
        except subprocess.TimeoutExpired as error:
            raise Transient(f"{_program(error.cmd)} did not finish within {self._seconds:.0f} seconds") from error
        except FileNotFoundError as error:
            raise Permanent(f"{error.filename} does not exist: is this a host of the batch system?") from error
        except InvalidJobException as error:
            raise Permanent(f"PSI/J cannot render the pilot's job: {error}") from error
        except OSError as error:
            raise Transient(f"nothing was submitted: {error}") from error
        finally:
            # The batch system has its own copy by now.
            with contextlib.suppress(OSError):
                (own.work_directory / f"{made.id}.job").unlink()
        named = made.native_id
        if not named:
            raise Transient("the submit command returned no job id")
        return str(named)

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says."""
        for job in jobs:
            own = self._executor()
            own.environment = self._environment
            made = Job()
            own.attach(made, job)
            try:
                await asyncio.to_thread(own.cancel, made)
            except (SubmitException, subprocess.TimeoutExpired, OSError) as error:
                raise Transient(f"job {job} could not be cancelled: {error}") from error

    def _executor(self) -> Unwatched:
        own = executor(self._kind, self._folder)
        own.seconds = self._seconds
        return own


def _job(job: PilotJob) -> Job:
    program, *arguments = job.command
    attributes = JobAttributes(queue_name=job.queue, account=job.account)
    # By default PSI/J requests ten minutes. Batch systems count in minutes.
    attributes.duration = timedelta(minutes=-(-job.wall // 60)) if job.wall is not None else None  # type: ignore[assignment]
    return Job(
        JobSpec(
            name=job.name,
            executable=program,
            arguments=arguments,
            directory=Path(job.directory),
            stdout_path=Path(job.output) if job.output is not None else None,
            inherit_environment=True,
            resources=ResourceSpecV1(
                node_count=job.nodes, processes_per_node=1, cpu_cores_per_process=job.cpus, memory=job.memory
            ),
            attributes=attributes,
        )
    )


def _program(command: object) -> str:
    return str(command[0]) if isinstance(command, list | tuple) and command else str(command)
