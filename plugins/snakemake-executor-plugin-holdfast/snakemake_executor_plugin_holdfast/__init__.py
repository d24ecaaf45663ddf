"""Runs the jobs of a Snakemake flow on Holdfast. The names are those that Snakemake looks for, and the types of its settings are read as they stand."""

import os
import shlex
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Optional

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from holdfast.client import HoldfastClient, Patience
from holdfast.client.answers import FINAL, WELL, Job, ResourcesJson
from holdfast.client.calls import LARGEST_PAGE, cancel, find_jobs
from holdfast.client.errors import ApiError, ClientError
from holdfast.client.settings import find_settings

MB = 1_000_000
LABEL = "snakemake-run"
LAG = timedelta(seconds=30)
"""How far behind the newest end that was seen the next look begins: a store may show writes a little late."""
WHOLE = 20
"""Every so many looks all ends of the run are read, whatever was seen."""
PATIENCE = Patience(seconds=600.0)
"""A server that is restarted costs nothing; one that is away for longer ends the run, and Snakemake begins where it stopped."""


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """Options of the plugin on Snakemake's command line."""

    server: Optional[str] = field(  # noqa: UP045 - Snakemake reads this spelling
        default=None,
        metadata={"help": "Address of the Holdfast server, or several with commas between.", "env_var": False},
    )
    token_file: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "File with your token.", "env_var": False}
    )
    team: Optional[str] = field(  # noqa: UP045
        default=None, metadata={"help": "The team that the jobs are accounted to.", "env_var": False}
    )


common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    pass_envvar_declarations_to_cmd=False,  # a command is stored and shown; these may be secrets
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):
    """Submits jobs, and asks with one question what became of them all."""

    def __post_init__(self) -> None:
        given: ExecutorSettings = self.workflow.executor_settings  # type: ignore[attr-defined]  # it is there for plugins
        try:
            known = find_settings(server=given.server, token_file=Path(given.token_file) if given.token_file else None)
        except ClientError as error:
            raise WorkflowError(f"no Holdfast server is known: {error}") from error
        self._client = HoldfastClient(known.server.value, known.token.value, patience=PATIENCE, notice=self.logger.info)
        self._team = given.team
        self._run = uuid.uuid4().hex
        self._variables: str | None = None
        self._newest: str | None = None
        self._looks = 0

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job. A repeat after a lost answer makes no second one."""
        name = job.name if not job.is_group() else f"group-{job.jobid}"
        command = f"cd {shlex.quote(os.getcwd())} && {self._sourced()}exec {self.format_job_exec(job)}"
        wanted: dict[str, Any] = {
            "specification": {
                "name": name,
                "command": ["bash", "-c", command],
                "resources": needs(job),
                "max_attempts": 1,
            },
            "labels": {LABEL: self._run},
            "priority": max(-1000, min(1000, int(getattr(job, "priority", 0) or 0))),
        }
        if self._team:
            wanted["team"] = self._team
        key = f"{self._run}-{job.jobid}-{getattr(job, 'attempt', 1)}"
        try:
            (accepted,) = self._client.submit([wanted], key=key)  # type: ignore[list-item]  # a dictionary of its fields
        except ClientError as error:
            raise WorkflowError(f"job {job.jobid} could not be submitted: {error}") from error
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=accepted["id"]))

    async def check_active_jobs(  # type: ignore[override]  # declared as what it is awaited for
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Tell those that have ended; those of which nothing is heard go on."""
        if not active_jobs:
            return
        async with self.status_rate_limiter:
            try:
                ended = self._ended()
            except ClientError as error:
                self.logger.info(f"Holdfast does not say how the jobs stand: {error}")
                ended = {}
        for info in active_jobs:
            job = ended.get(str(info.external_jobid))
            if job is None:
                yield info
            elif job["state"] in WELL:
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=why(job))

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        for info in active_jobs:
            try:
                self._client.send(cancel(str(info.external_jobid), reason="Snakemake was stopped"))
            except ApiError:
                continue  # it has ended meanwhile
            except ClientError as error:
                self.logger.info(f"job {info.external_jobid} is not cancelled: {error}")

    def _ended(self) -> dict[str, Job]:
        """The jobs of this run that have ended since the last look."""
        filters: dict[str, Any] = {"label": f"{LABEL}={self._run}", "state": sorted(FINAL)}
        if self._newest is not None and self._looks % WHOLE:
            filters["changed_after"] = self._newest
        self._looks += 1
        found: dict[str, Job] = {}
        cursor = None
        while True:
            page = self._client.send(find_jobs(filters, sort="changed", limit=LARGEST_PAGE, cursor=cursor))
            found |= {job["id"]: job for job in page.jobs}
            cursor = page.cursor
            if cursor is None:
                break
        if found:
            self._newest = (self._client.now() - LAG).isoformat()
        return found

    def _sourced(self) -> str:
        """The declared variables, by a file: what stands in a command is stored and shown."""
        declared = self.envvars()
        if not declared:
            return ""
        if self._variables is None:
            place = Path(self.tmpdir) / "holdfast-variables"
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as target:
                target.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in declared.items())
            self._variables = str(place)
        return f". {shlex.quote(self._variables)} && "


def needs(job: JobExecutorInterface) -> ResourcesJson:
    """What a job needs, from Snakemake's usual names."""
    known = job.resources
    found: ResourcesJson = {"cpus": max(1, int(job.threads))}
    for ours, theirs, unit in (("memory", "mem_mb", MB), ("disk", "disk_mb", MB), ("wall", "runtime", 60)):
        amount = known.get(theirs)
        if isinstance(amount, int | float) and not isinstance(amount, bool) and amount > 0:
            found[ours] = int(amount * unit)  # type: ignore[literal-required]  # one of its fields
    gpus = known.get("gpu", known.get("gpus"))
    if isinstance(gpus, int) and gpus > 0:
        found["gpus"] = gpus
    return found


def why(job: Job) -> str:
    """How a job ended, in a sentence for Snakemake's log."""
    last = job.get("last") or {}
    code, signal, reason = last.get("exit_code"), last.get("signal"), last.get("reason")
    how = f"signal {signal}" if signal else f"exit code {code}" if code else reason or job["state"]
    return f"Holdfast job {job['id']} is {job['state']} ({how}) after {job['attempt']} attempts; `holdfast explain {job['id']}` says more. "
