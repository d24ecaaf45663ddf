"""One of Forestay's processes, as it is, with fault points in it.

    python -m tests.system.chaos.runs.watched_process FOLDER server|reconciler|orchestrator

The points are put around the adapters from outside: the product itself has no switch that kills it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
    WorkflowInstance,
    WorkflowInstanceDetails,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from tests.system.chaos.runs.fault_points import AFTER, BEFORE, FaultPoints
from tests.system.chaos.runs.flows import DIRECT_JOBS

from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.temporal import activity_heartbeats
from forestay.adapters.temporal import orchestrator as temporal_worker
from forestay.adapters.temporal.flow_engine import TemporalFlowEngine
from forestay.adapters.temporal.schedules import TemporalSchedules
from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.apps import compose as wiring
from forestay.apps.entry import main
from forestay.apps.orchestrator import process as orchestrator
from forestay.apps.reconciler import process as reconciler
from forestay.apps.server import app
from forestay.domain.flows.execution import rounds
from forestay.services.scheduling.claim_dispatcher import ClaimDispatcher
from forestay.services.scheduling.claim_settings import ClaimSettings
from forestay_pilot.process import libc

SILENT = timedelta(seconds=6)
"""After so long an activity of a killed orchestrator is given to another; the product's 20 seconds would only make trials longer."""
COMMANDS = {"reconciler": "reconciler", "orchestrator": "orchestrator"}
LOADED = (app, reconciler, orchestrator)
"""What a process loads only when it is started."""


class WatchedActivities(Interceptor):
    """Points around every activity: before it begins, and when it is done but Temporal does not know."""

    def __init__(self, points: FaultPoints) -> None:
        self.points = points

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 - its name there
        return _WatchedActivity(next, self.points)


class _WatchedActivity(ActivityInboundInterceptor):
    def __init__(self, inner: ActivityInboundInterceptor, points: FaultPoints) -> None:
        super().__init__(inner)
        self.points = points

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - its name there
        name = getattr(input.fn, "__name__", "activity")
        self.points.passed(f"activity.{name}", BEFORE)
        answer = await self.next.execute_activity(input)
        self.points.passed(f"activity.{name}", AFTER)
        return answer


class WatchedRunner(WorkflowRunner):
    """Points around every step of a workflow: before it is taken, and when it is taken but Temporal does not know."""

    def __init__(self, inner: WorkflowRunner, points: FaultPoints) -> None:
        self.inner = inner
        self.points = points

    def prepare_workflow(self, defn: Any) -> None:
        self.inner.prepare_workflow(defn)

    def set_worker_level_failure_exception_types(self, types: Any) -> None:
        self.inner.set_worker_level_failure_exception_types(types)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = self.inner.create_instance(det)
        kind, points, activate = det.info.workflow_type, self.points, instance.activate

        def watched(act: WorkflowActivation) -> Any:
            step = _step(act)
            if step is None:
                return activate(act)
            points.passed(f"{kind}.{step}", BEFORE)
            completion = activate(act)
            points.passed(f"{kind}.{step}", AFTER)
            return completion

        instance.activate = watched  # type: ignore[method-assign]
        return instance


def _step(act: WorkflowActivation) -> str | None:
    """What a workflow is told in a step; None if it is nothing new."""
    if act.is_replaying:
        return None
    kinds = [job.WhichOneof("variant") for job in act.jobs]
    for kind in kinds:
        if kind not in ("remove_from_cache", "query_workflow", "notify_has_patch", "update_random_seed", None):
            return str(kind)
    return None


def install(points: FaultPoints) -> None:
    """Put the points where they belong, and make what a trial would only wait for shorter."""
    points.watch(SqlJobStore, "store", "write", "put_specifications", "add_records")
    points.watch(SqlDocumentStore, "documents", "get", "put")
    points.watch(SqlIncidentStore, "incidents", "add_incidents", "add_decisions", "add_steps", "put_statuses")
    points.watch(TemporalFlowEngine, "engine", "start", "tell_run", "tell_shard", "send_verb")
    points.watch(TemporalSchedules, "schedules", "put_schedule", "delete_schedule")
    known = SandboxRestrictions.default.with_passthrough_modules(
        "forestay.domain", "forestay.flows", temporal_runtime.__name__
    )

    def watched_worker(*args: Any, **options: Any) -> Worker:
        options["interceptors"] = [*options.get("interceptors", ()), WatchedActivities(points)]
        return Worker(*args, **options)

    def watched_runner(_formats: object) -> Any:
        return WatchedRunner(SandboxedWorkflowRunner(restrictions=known), points)

    def eager_desk(*args: Any, **options: Any) -> ClaimDispatcher:
        # An SQL store shows at once what was written: trials need not wait for one that does not.
        return ClaimDispatcher(*args, **{**options, "settings": ClaimSettings(settle=0.1)})

    for module, name, stand_in in (
        (wiring, "ClaimDispatcher", eager_desk),
        (temporal_worker, "Worker", watched_worker),
        (temporal_worker, "runner", watched_runner),
        (temporal_worker, "STICKY", timedelta(seconds=1)),
        # Seen by workflows because they share this module here.
        (temporal_runtime, "SILENT", SILENT),
        (activity_heartbeats, "EVERY", SILENT.total_seconds() / 10),
        (temporal_worker, "EVERY", SILENT.total_seconds() / 10),
        (rounds, "DIRECT_JOBS", DIRECT_JOBS),
    ):
        setattr(module, name, stand_in)


def live_on(folder: Path, role: str) -> int:
    """Live, be killed, live again. The mother of all lives has loaded everything, so that the next one begins at once, knowing nothing."""
    gc.freeze()
    while True:
        child = os.fork()
        if child == 0:
            libc.die_with_parent()
            install(FaultPoints(folder, role))
            sys.argv = ["forestay", COMMANDS.get(role, role)]
            main()
            sys.exit()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL:
            return code


if __name__ == "__main__":
    sys.exit(live_on(Path(sys.argv[1]), sys.argv[2]))
