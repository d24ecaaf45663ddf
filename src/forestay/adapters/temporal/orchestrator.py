"""The orchestrator: runs the workflows of runs and shards and their activities. Any number may run; each is stateless."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from forestay.adapters.temporal.activities import Activities
from forestay.adapters.temporal.activity_heartbeats import EVERY, ActivityHeartbeats
from forestay.adapters.temporal.flow_engine import python_queue
from forestay.adapters.temporal.workflows.playbook import PlaybookWorkflow
from forestay.adapters.temporal.workflows.python_run import PythonRunWorkflow
from forestay.adapters.temporal.workflows.run import FlowRunWorkflow
from forestay.adapters.temporal.workflows.scheduled_run import ScheduledRunWorkflow
from forestay.adapters.temporal.workflows.shard import ShardWorkflow
from forestay.adapters.temporal.workflows.temporal_runtime import waiting_queue
from forestay.ports.flows.flow_format import FlowFormat

WORKFLOWS = (FlowRunWorkflow, ShardWorkflow, PlaybookWorkflow, ScheduledRunWorkflow)
PYTHON_WORKFLOWS = (*WORKFLOWS, PythonRunWorkflow)
STICKY = timedelta(seconds=5)
"""How long a workflow waits for the orchestrator that ran it last before any other may continue it: if that one was killed, it is delayed for this time."""


def runner(formats: Sequence[FlowFormat] = ()) -> SandboxedWorkflowRunner:
    """The sandbox, without a copy of the domain for each workflow: it is pure. So are the imports of Python flows, and the modules that formats declare."""
    pure = [module for flow_format in formats for module in flow_format.pure_modules]
    known = SandboxRestrictions.default.with_passthrough_modules("forestay.domain", "forestay.flows", *pure)
    return SandboxedWorkflowRunner(restrictions=known)


async def run_orchestrator(
    client: Client,
    *,
    task_queue: str,
    activities: Activities,
    python: bool = False,
    formats: Sequence[FlowFormat] = (),
) -> None:
    """Serve one task queue and the queue of waiting activities until cancelled; with ``python`` the queue of Python flows too."""
    added = [flow_format.workflow() for flow_format in formats]
    async with asyncio.TaskGroup() as group:
        for queue, workflows in [(task_queue, WORKFLOWS), (python_queue(task_queue), PYTHON_WORKFLOWS)][
            : 2 if python else 1
        ]:
            for orchestrator in _orchestrators(client, queue, [*workflows, *added], runner(formats), activities):
                group.create_task(orchestrator.run())


def _orchestrators(
    client: Client,
    task_queue: str,
    workflows: Sequence[type[Any]],
    sandbox: SandboxedWorkflowRunner,
    activities: Activities,
) -> tuple[Worker, Worker]:
    working = Worker(
        client,
        task_queue=task_queue,
        workflows=workflows,
        activities=activities.all(),
        workflow_runner=sandbox,
        interceptors=[ActivityHeartbeats()],
        # Most of them wait for the store, and those of a large flow must not block the others.
        max_concurrent_activities=300,
        # Otherwise Temporal's client delays them until it is nearly too late.
        max_heartbeat_throttle_interval=timedelta(seconds=EVERY),
        sticky_queue_schedule_to_start_timeout=STICKY,
        graceful_shutdown_timeout=timedelta(seconds=10),
    )
    waiting = Worker(
        client,
        task_queue=waiting_queue(task_queue),
        activities=activities.waiting(),
        interceptors=[ActivityHeartbeats()],
        max_heartbeat_throttle_interval=timedelta(seconds=EVERY),
        max_concurrent_activities=1000,
        max_concurrent_activity_task_polls=2,
    )
    return working, waiting
