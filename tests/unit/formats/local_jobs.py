"""Runs a flow's jobs as processes on this machine, one after the other: no store, no pilot, but the pilot's own words for what is run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatch
from glob import glob
from pathlib import Path

from forestay.domain.flows.commands import Command, ListFiles, SubmitJobs, WatchFiles
from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.definition.flow_version import planned
from forestay.domain.flows.events import Event, FilesAppeared, FilesListed, JobsAccepted, JobsEnded
from forestay.domain.flows.execution.advance import advance, start_run
from forestay.domain.flows.execution.flow_run import FlowRun, RunPhase
from forestay.domain.flows.execution.task_jobs import TaskJobs, parameters, task_jobs
from forestay_pilot.process.payload import Surroundings, make_payload, read_claim


class LocalJobs:
    """One run, run to its end."""

    def __init__(self, flow: Flow, folder: Path, params: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.plan = planned(flow)
        self.listings: dict[str, list[str]] = {}
        self.events: list[Event] = []
        self.ran: dict[str, int] = {}
        self.logs = ""
        self.run, commands = start_run(self.plan, run="c1", at=1, params=params)
        self.perform(commands)
        while self.events and self.run.phase is not RunPhase.FINISHED:
            self.run, commands = advance(self.run, self.events.pop(0))
            self.perform(commands)

    @property
    def end(self) -> FlowRun:
        return self.run

    def perform(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            match command:
                case SubmitJobs():
                    self.submit(command)
                case ListFiles(work, _, dimension, pattern):
                    self.listings[work] = sorted(glob(pattern))
                    self.events.append(FilesListed(2, work, dimension, work, len(self.listings[work])))
                case WatchFiles(work, _, dimension, pattern):
                    self.listings[work] = sorted(glob(pattern))
                    self.events.append(FilesAppeared(2, work, dimension, work, len(self.listings[work]), ended=True))
                case _:
                    continue

    def submit(self, command: SubmitJobs) -> None:
        order = command.order
        jobs = task_jobs(self.plan, order, tenant="lab", files=self.files)
        chosen = parameters(self.plan, order, range(command.first, command.first + command.count), member=self.member)
        if not command.wait:
            self.events.append(JobsAccepted(2, order.work, command.first, command.count))
        for index, values in enumerate(chosen, start=command.first):
            ok, result = self.execute(order.work, index, jobs, values)
            self.ran[order.task] = self.ran.get(order.task, 0) + 1
            bit = 1 << index
            code = 0 if ok else 1
            self.events.append(JobsEnded(2, order.work, bit if ok else 0, 0 if ok else bit, 0, code, result))

    def execute(self, work: str, index: int, jobs: TaskJobs, values: Mapping[str, object]) -> tuple[bool, object]:
        folder = self.place(work, index)
        folder.mkdir(parents=True)
        specification = {
            "command": list(jobs.specification.command),
            "environment": dict(jobs.specification.environment),
            "outputs": list(jobs.specification.outputs),
        }
        claim = {"job": "j", "generation": 0, "attempt": 1, "claim": "c", "index": index, "parameters": dict(values), "specification": specification}  # fmt: skip
        payload = make_payload(read_claim(claim), str(folder), "log", Surroundings())
        done = subprocess.run(
            payload.argv, env=payload.environment, cwd=folder, capture_output=True, text=True, check=False
        )
        self.logs += done.stdout + done.stderr
        missing = [output for output in jobs.specification.outputs if not list(folder.glob(output))]
        if done.returncode or missing:
            self.logs += f"{work} {index}: exit code {done.returncode}, missing {missing}\n"
            return False, None
        return True, json.loads((folder / jobs.result).read_text()) if jobs.result else None

    def place(self, work: str, index: int) -> Path:
        return self.folder / work.replace("/", "_") / str(index)

    def member(self, listing: str, place: int) -> object:
        return self.listings[listing][place]

    def files(self, output: Mapping[str, object], several: bool) -> object:
        """Found in the folders as a pilot would have committed them."""
        work = str(output["work"])
        task = self.plan.tasks[work.rpartition("@")[0].rpartition("/")[2]].task
        pattern = getattr(task.pattern, "outputs")[str(output["output"])]  # noqa: B009 - a job has them
        count = int(str(output["count"])) if several else 1
        paths = [
            str(path)
            for index in range(count)
            for path in sorted(self.place(work, index).glob("*"))
            if fnmatch(path.name, pattern)
        ]
        return paths if several else paths[0]
