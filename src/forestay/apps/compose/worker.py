"""The services of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from forestay.adapters.system.file_lists import SharedFiles
from forestay.apps.compose.parts import Parts, choose_worklets, run_exlet
from forestay.apps.compose.peers import place_cases
from forestay.apps.compose.server import ServerParts
from forestay.domain.jobs.claim import leave_fault
from forestay.ports.errors import Permanent, Transient
from forestay.services.data.find_outputs import FindOutputs
from forestay.services.data.keep_listings import KeepListings
from forestay.services.exceptions.detect.raise_timeouts import RaiseTimeouts
from forestay.services.flows.keep_gates import KeepGates
from forestay.services.flows.submit_flow_jobs import SubmitFlowJobs
from forestay.services.jobs.steer_jobs import SteerJobs
from forestay.services.jobs.submit_jobs import SubmitJobs
from forestay.services.rules.bind_worklets import BindWorklets

log = structlog.get_logger()


class WorkerParts:
    """The services of one worker, joined; in one process with a server, a new job is offered to its pilots at once."""

    def __init__(self, parts: Parts, server: ServerParts | None = None) -> None:
        if parts.engine is None or parts.relay is None:
            raise Permanent("a worker needs Temporal: set FORESTAY_TEMPORAL to its HOST:PORT")
        self.parts = parts
        self.engine = parts.engine
        self.relay = parts.relay
        submit = server.submit if server else SubmitJobs(parts.store, parts.clock, parts.ids, slips=parts.slips)
        if server is None and parts.traces is not None and parts.tracing is not None:
            submit.offered.append(parts.tracing.created)
            submit.trace = parts.traces.current
        steer = SteerJobs(parts.store, parts.writer, parts.clock, leave_fault, parts.incidents)
        settings = parts.settings
        shared = SharedFiles(settings.flow_files, hidden=(settings.state,))
        self.listings = KeepListings(parts.store, parts.clock, shared, every=settings.watch_every)
        self.worklets = BindWorklets(parts.slips, parts.flows, choose_worklets(parts))
        outputs = FindOutputs(parts.store, parts.relay.ends.results)
        self.jobs = SubmitFlowJobs(
            parts.store,
            parts.slips,
            parts.flows,
            submit,
            steer,
            parts.relay.ends,
            self.listings,
            outputs,
            parts.staging,
            KeepGates(parts.slips),
            parts.checks,
        )
        self.exlets = run_exlet(parts, steer)
        self.places = place_cases(parts, parts.engine)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """A worker in a process of its own also sees ends: those of jobs that it cancels or continues."""
        return {"worker": self.run, "hints": self.relay.run_hints}

    async def run(self) -> None:
        """Work until cancelled; while Temporal cannot be reached, wait for it."""
        from forestay.adapters.temporal.activities import Activities
        from forestay.adapters.temporal.check_activities import CheckActivities
        from forestay.adapters.temporal.exlet_activities import ExletActivities
        from forestay.adapters.temporal.worker import run_worker

        while True:
            try:
                client = await self.engine.client()
                break
            except Transient as error:
                log.warning("the worker waits", detail=str(error))
                await asyncio.sleep(1.0)
        assert self.parts.checks is not None  # noqa: S101 - there is an engine
        parts = self.parts
        timeouts = RaiseTimeouts(parts.exceptions, parts.flows, self.engine, parts.clock)
        checks = CheckActivities(self.parts.checks, timeouts)
        activities = Activities(
            client, self.parts.store, self.jobs, self.listings, self.worklets, ExletActivities(self.exlets), checks,
            self.places,
        )  # fmt: skip
        python = self.parts.settings.flows is not None
        await run_worker(client, task_queue=self.engine.task_queue, activities=activities, python=python)
