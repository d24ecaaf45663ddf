"""The services of an orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from forestay.adapters.system.file_digests import SharedFileDigests
from forestay.adapters.system.file_lists import SharedFiles
from forestay.apps.compose.components import Components, build_playbook_runner, build_worklet_selector
from forestay.apps.compose.peers import build_run_placement
from forestay.domain.jobs.claim import leave_failure
from forestay.ports.errors import Permanent, Transient
from forestay.services.data.listings import Listings
from forestay.services.data.output_resolver import OutputResolver
from forestay.services.exceptions.act.worklet_runner import WorkletRunner
from forestay.services.exceptions.detect.timeout_detector import TimeoutDetector
from forestay.services.flows.flow_jobs import FlowJobs
from forestay.services.flows.flow_suspensions import FlowSuspensions
from forestay.services.flows.result_reuse import ResultReuse
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import JobSubmitter
from forestay.services.rules.worklet_bindings import WorkletBindings

if TYPE_CHECKING:
    from forestay.apps.compose.server import ServerComponents

log = structlog.get_logger()


class OrchestratorComponents:
    """The services of one orchestrator, joined; in one process with a server, a new job is offered to its pilots at once."""

    def __init__(self, components: Components, server: ServerComponents | None = None) -> None:
        if components.engine is None or components.relay is None:
            raise Permanent("an orchestrator needs Temporal: set FORESTAY_TEMPORAL to its HOST:PORT")
        self.components = components
        self.engine = components.engine
        self.relay = components.relay
        submit = (
            server.submit
            if server
            else JobSubmitter(
                components.store,
                components.clock,
                components.ids,
                listeners=components.new_job_listeners(),
                documents=components.documents,
                trace=components.current_trace,
            )
        )
        steer = JobControl(components.store, components.writer, components.clock, leave_failure, components.incidents)
        settings = components.settings
        shared = SharedFiles(settings.flow_files, hidden=(settings.state,))
        self.listings = Listings(components.store, components.clock, shared, every=settings.watch_every)
        self.worklets = WorkletBindings(components.documents, components.flows, build_worklet_selector(components))
        outputs = OutputResolver(components.store, components.relay.completions.results)
        self.jobs = FlowJobs(
            components.store,
            components.documents,
            components.flows,
            submit,
            steer,
            components.relay.completions,
            self.listings,
            outputs,
            components.staging,
            FlowSuspensions(components.documents),
            components.compensations,
            components.checks,
            ResultReuse(
                components.store,
                components.documents,
                components.relay.completions.results,
                SharedFileDigests((*settings.flow_files, *settings.outputs)),
            ),
        )
        self.playbooks = build_playbook_runner(components, steer)
        self.places = build_run_placement(components, components.engine)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The loops of an orchestrator in a process of its own, which also handles completions of jobs that it cancels or continues."""
        return {"orchestrator": self.run, "hints": self.relay.run_hints}

    async def run(self) -> None:
        """Run until cancelled; while Temporal cannot be reached, wait for it."""
        from forestay.adapters.temporal.activities import Activities
        from forestay.adapters.temporal.check_activities import CheckActivities
        from forestay.adapters.temporal.orchestrator import run_orchestrator
        from forestay.adapters.temporal.playbook_activities import PlaybookActivities

        while True:
            try:
                client = await self.engine.client()
                break
            except Transient as error:
                log.warning("the orchestrator waits for Temporal", detail=str(error))
                await asyncio.sleep(1.0)
        assert self.components.checks is not None  # noqa: S101 - there is an engine
        components = self.components
        timeouts = TimeoutDetector(components.pipeline, components.flows, self.engine, components.clock)
        checks = CheckActivities(self.components.checks, timeouts)
        worklets = WorkletRunner(self.playbooks, components.store, components.flows, self.components.checks)
        playbooks = PlaybookActivities(self.playbooks, worklets)
        schedules = components.schedules()
        activities = Activities(
            client, self.components.store, self.jobs, self.listings, self.worklets, playbooks, checks,
            self.places, components.questions,
            schedules, components.events,
        )  # fmt: skip
        python = self.components.settings.flows is not None
        await run_orchestrator(
            client,
            task_queue=self.engine.task_queue,
            activities=activities,
            python=python,
            formats=components.formats.installed(),
        )
