"""Submits the jobs of a flow, polls all of them in one request, and finds jobs again that an earlier run has left."""

from __future__ import annotations

import os
import re
import shlex
import time
import uuid
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

from forestay.client.api import calls, incident_calls
from forestay.client.api.answers import FINAL, STATES, WELL
from forestay.client.transport.errors import ApiError, ClientError, NotAllowed, Unavailable
from snakemake_executor_plugin_forestay.earlier_work import folder_name, place_of, properties_of, work_of
from snakemake_executor_plugin_forestay.needs import container_of, needs
from snakemake_executor_plugin_forestay.server_link import ServerLink
from snakemake_executor_plugin_forestay.settings import ExecutorSettings
from snakemake_executor_plugin_forestay.words import why

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job, NewJob

RUN, FOLDER, PLACE, WORK = "snakemake-run", "snakemake-folder", "snakemake-place", "snakemake-work"
WILDCARDS, ATTEMPT = "snakemake-wildcards", "snakemake_attempt"
LAG = timedelta(seconds=30)
"""How far before the newest known end the next poll begins: a store may show writes a little late."""
WHOLE = 20
"""Every this many polls, all ends since the beginning are read, whatever was seen."""
SOON = 2.0
"""Seconds to the next poll after one that found an end: ends seldom come alone, and later jobs wait for them."""
SELDOM = 30.0
"""The most seconds between polls of a server that does not answer."""
STOPPED = 120.0
"""Seconds within which a cancelled job must be known to have stopped."""
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "CONDA_EXE", "MODULEPATH", "LOADEDMODULES", "_LMFILES_", "MODULESHOME", "LANG", "LC_ALL")  # fmt: skip
"""The environment variables of Snakemake that are passed to jobs, as by other batch systems. They contain no secrets; a flow declares further ones by `envvars`."""
_SHOWN = re.compile(r"[^A-Za-z0-9 .,=_/@+:-]")


class Executor(RemoteExecutor):
    """The executor of one run of Snakemake."""

    def __post_init__(self) -> None:
        self._given: ExecutorSettings = self.workflow.executor_settings  # type: ignore[attr-defined]  # it is there for plugins
        self._run = uuid.uuid4().hex
        self._variables: str | None = None
        self._open: dict[str, SubmittedJobInfo] = {}
        """Jobs that are not known to have ended. Snakemake's own list is empty during a poll."""
        self._looks = 0
        self._silent: float | None = None
        try:
            self._link = ServerLink(self._given, self.logger.info)
            self._folder = folder_name(Path(self.workflow.persistence.path))
            self._earlier = self._unfinished()
        except NotAllowed as error:
            raise WorkflowError(f"Forestay does not take your token: {error}") from error
        except ClientError as error:
            raise WorkflowError(f"no Forestay server is known: {error}") from error
        self._begun = self._newest = self._before_now()

    def run_job(self, job: JobExecutorInterface) -> None:
        """Submit a job, or find it among those that an earlier run has left. A repetition after a lost answer submits no second one."""
        place, work = place_of(job), work_of(job, str(self.workflow.main_snakefile))
        try:
            name = self._found_again(job, place, work)
            if name is None:
                name = self._submitted(job, place, work)
        except ClientError as error:
            raise WorkflowError(f"job {job.jobid} ({job.name}) could not be submitted to Forestay: {error}") from error
        info = SubmittedJobInfo(job, external_jobid=name)
        self._open[name] = info
        self.report_job_submission(info)

    async def check_active_jobs(  # type: ignore[override]  # declared as what it is awaited for
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report the jobs that have ended; jobs without news count as active."""
        ended: dict[str, Job] = {}
        if active_jobs:
            async with self.status_rate_limiter:
                ended = self._ended()
        for info in active_jobs:
            job = ended.get(str(info.external_jobid))
            if job is None:
                yield info
                continue
            self._open.pop(job["id"], None)
            if job["state"] in WELL:
                self.report_job_success(info)
            else:
                text, log = self._explained(job)
                self.report_job_error(info, msg=text, aux_logs=log)

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel all jobs of this run that have not ended; jobs that could not be cancelled are listed, with what to do."""
        left = list(self._open)
        while left:
            try:
                self._link.once(calls.cancel(left[-1], reason="Snakemake was stopped"))
            except (Unavailable, NotAllowed) as error:
                self.logger.info(
                    f"Forestay cannot be told that Snakemake was stopped ({error}), and these jobs go on. Cancel them later: forestay cancel {' '.join(left)}"
                )
                return
            except ApiError:
                pass  # it has ended meanwhile
            left.pop()

    def _submitted(self, job: JobExecutorInterface, place: str, work: str) -> str:
        # Without exec: Snakemake's text may be several commands.
        command = f"cd {shlex.quote(os.getcwd())} && {self._sourced()}{self.format_job_exec(job)}"
        wanted: dict[str, Any] = {
            "specification": {
                "name": job.name[:200],
                "command": ["bash", "-c", command],
                "environment": {name: os.environ[name] for name in PASSED if name in os.environ},
                "resources": needs(job),
                # It writes into the folder of the flow: two runs of it must not overlap, so it ends with its pilot's lease.
                # A further attempt is harmless: Snakemake removes incomplete outputs of an earlier one.
                "effects": "resumable",
                "max_attempts": 1,
                "when_exhausted": self._given.when_exhausted or "fail",
            },
            "labels": {
                RUN: self._run, FOLDER: self._folder, PLACE: place, WORK: work,
                ATTEMPT: str(job.attempt), WILDCARDS: _shown(job),
            },
            "priority": max(-1000, min(1000, int(getattr(job, "priority", 0) or 0))),
        }  # fmt: skip
        if image := container_of(job) or self._given.container:
            wanted["specification"]["container"] = image
        if self._given.team:
            wanted["team"] = self._given.team
        (accepted,) = self._link.surely(calls.submit([cast("NewJob", wanted)]))
        return accepted["id"]

    def _found_again(self, job: JobExecutorInterface, place: str, work: str) -> str | None:
        """The job of an earlier run that does the same work. A job that makes the same outputs in another way is stopped first."""
        for other_job in self._earlier.pop(place, []):
            now = self._link.surely(calls.job(other_job["id"]))
            if now["state"] in FINAL:
                continue
            unbegun_and_other = now["attempt"] == 0 and any(
                now["resources"].get(name) != value for name, value in needs(job).items()
            )
            if not self._given.fresh and now["labels"].get(WORK) == work and not unbegun_and_other:
                self.logger.info(f"job {job.jobid} ({job.name}) is on Forestay from an earlier run, as {now['id']}")
                return now["id"]
            self.logger.info(f"job {now['id']} of an earlier run makes the outputs of {job.name} otherwise: cancelled")
            self._stop(now)
        return None

    def _stop(self, job: Job) -> None:
        """Cancel a job, and wait until its payload is known to have stopped."""
        self._link.surely(calls.cancel(job["id"], reason="Snakemake begins its work anew"))
        if job["claim"] is None:
            return
        give_up = time.monotonic() + STOPPED
        while not self._link.surely(calls.story(job["id"]))["evidence"]:
            if time.monotonic() > give_up:
                raise WorkflowError(
                    f"job {job['id']} of an earlier run makes the same outputs, was cancelled, and is not known to have stopped. Start Snakemake again when its host is heard of, or is gone: forestay story {job['id']}"
                )
            time.sleep(0.5)

    def _unfinished(self) -> dict[str, list[Job]]:
        """The jobs in this folder that earlier runs have left, by place."""
        wanted = {"label": f"{FOLDER}={self._folder}", "state": sorted(set(STATES) - FINAL)}
        jobs: dict[str, list[Job]] = {}
        for page in self._pages(wanted, surely=True):
            jobs.setdefault(page["labels"].get(PLACE, ""), []).append(page)
        return jobs

    def _ended(self) -> dict[str, Job]:
        """The jobs of this folder that have ended since the last poll: one request for all of them."""
        since = self._newest if self._looks % WHOLE else self._begun
        wanted = {"label": f"{FOLDER}={self._folder}", "state": sorted(FINAL), "changed_after": since}
        asked = self._before_now()
        try:
            jobs = {page["id"]: page for page in self._pages(wanted)}
        except ClientError as error:
            self._unheard(error)
            return {}
        self._looks += 1
        if self._silent is not None:
            self.logger.info("Forestay answers again.")
        self._silent, self._newest = None, asked
        usual = self.workflow.remote_execution_settings.seconds_between_status_checks
        self.next_seconds_between_status_checks = min(SOON, usual) if jobs.keys() & self._open.keys() else None
        return jobs

    def _unheard(self, error: ClientError) -> None:
        """Report once that the server does not answer. The jobs continue without it, so it is waited for as long as necessary."""
        if self._silent is None:
            self._silent = 1.0
            self.logger.info(
                f"Forestay does not say how the jobs stand ({error}). They go on; it is asked again until it answers."
            )
        self._silent = min(SELDOM, 2 * self._silent)
        self.next_seconds_between_status_checks = self._silent

    def _pages(self, wanted: dict[str, Any], *, surely: bool = False) -> list[Job]:
        jobs: list[Job] = []
        cursor = None
        while True:
            call = calls.find_jobs(wanted, sort="changed", limit=calls.LARGEST_PAGE, cursor=cursor)
            page = self._link.surely(call) if surely else self._link.once(call)
            jobs += page.jobs
            cursor = page.cursor
            if cursor is None:
                return jobs

    def _before_now(self) -> str:
        return (datetime.fromisoformat(self._link.now()) - LAG).isoformat()

    def _explained(self, job: Job) -> tuple[str, list[str]]:
        """Why a job failed, and where its log is: fetched, since it is on a machine to which the user may have no access."""
        incident, log = None, []
        try:
            newest = self._link.once(incident_calls.find_incidents({"job": job["id"]}, limit=1)).incidents
            incident = self._link.once(incident_calls.incident(newest[0]["id"])) if newest else None
            place = Path(self.workflow.persistence.path) / "forestay_logs" / f"{job['id']}.log"
            place.parent.mkdir(exist_ok=True)
            place.write_text(self._link.once(calls.log(job["id"])), encoding="utf-8")
            log = [os.path.relpath(place)]
        except (ClientError, OSError) as error:
            self.logger.info(f"Forestay does not say more about {job['id']}: {error}")
        return why(job, incident, self._link.server), log

    def _sourced(self) -> str:
        """The declared variables, through a file: the text of a command is stored and shown."""
        declared = self.envvars()
        if not declared:
            return ""
        if self._variables is None:
            place = Path(self.tmpdir) / "forestay-variables"
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as target:
                target.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in declared.items())
            self._variables = str(place)
        return f". {shlex.quote(self._variables)} && "


def _shown(job: JobExecutorInterface) -> str:
    """The wildcards, for display in the queue."""
    text = ",".join(f"{name}={value}" for name, value in properties_of(job).get("wildcards", {}).items())
    return _SHOWN.sub("_", text)[:200]
