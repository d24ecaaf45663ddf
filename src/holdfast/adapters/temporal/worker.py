"""The worker: runs the workflows of cases and shards and their activities. Any number may run; none keeps anything."""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from holdfast.adapters.temporal.activities import Activities
from holdfast.adapters.temporal.signs_of_life import EVERY, SignsOfLife
from holdfast.adapters.temporal.workflows.case import CaseWorkflow
from holdfast.adapters.temporal.workflows.shard import ShardWorkflow
from holdfast.ports.job_store import JobStore
from holdfast.services.submit_flow_jobs import SubmitFlowJobs

WORKFLOWS = (CaseWorkflow, ShardWorkflow)
STICKY = timedelta(seconds=5)
"""How long a workflow waits for the worker that ran it last, before any other may go on with it: so long it stands still when that one was killed."""


def runner() -> SandboxedWorkflowRunner:
    """The sandbox, without a copy of the domain for each workflow: it is pure."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("holdfast.domain"))


def make_worker(client: Client, *, task_queue: str, store: JobStore, jobs: SubmitFlowJobs) -> Worker:
    """A worker of one task queue, not yet running."""
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=Activities(client, store, jobs).all(),
        workflow_runner=runner(),
        interceptors=[SignsOfLife()],
        # Most of them wait for their turn at the store, and those of a large flow must not keep the others out.
        max_concurrent_activities=300,
        max_heartbeat_throttle_interval=timedelta(
            seconds=EVERY
        ),  # else Temporal's client keeps them back until it is nearly too late
        sticky_queue_schedule_to_start_timeout=STICKY,
        graceful_shutdown_timeout=timedelta(seconds=10),
    )
