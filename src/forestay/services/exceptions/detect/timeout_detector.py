"""Timeouts of runs and tasks (paper P1, section 4.1): rules see the task that timed out and every task that runs in parallel to it.

A rule in a task's own tree is evaluated for each of them. A rule for any task is evaluated only for the one that timed out. The flow's own reaction to a
deadline (``then: report`` or ``fail``) is carried out by the run, independently of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.jobs.job_document import task_of
from forestay.ports.clock import Clock
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.run_context import instance_in, run_context

TIMEOUT = ExceptionType.TIMEOUT
LATE = frozenset({"task-late", "run-late"})
"""The reports of a run when a deadline has passed."""
UNDER_WAY = frozenset({"listing", "binding", "asking", "awaiting", "running", "faulted"})


@dataclass(slots=True)
class TimeoutDetector:
    """The service."""

    pipeline: ExceptionPipeline
    flows: FlowStore
    engine: FlowEngine
    clock: Clock

    async def late(self, *, tenant: str, owner: str, run: str, flow: str, instance: str, event: str) -> int:
        """Handle a passed deadline of a task or, with an empty ``instance``, of the run; returns how many exceptions were answered."""
        name = await self.flows.name(tenant, flow)
        await self.pipeline.decider.get_ready()
        decider = self.pipeline.decider
        state = await self.engine.state(run)
        beside = [
            str(other_instance["id"])
            for other_instance in state["instances"]
            if other_instance["id"] != instance
            and other_instance.get("state", "waiting") in UNDER_WAY
            and decider.has_rules(tenant, name, TIMEOUT, task_of(str(other_instance["id"])), own=True)
        ]
        first = [instance] if decider.wanted(tenant, name, TIMEOUT, task_of(instance)) else []
        now = self.clock.now()
        raised = []
        for other_instance in (*first, *beside):
            context = run_context(state, now, instance=other_instance)
            context["exception"] = {"task_id": instance}
            found_instance = instance_in(state, other_instance) or {}
            raised.append(
                ExceptionEvent(
                    TIMEOUT,
                    tenant,
                    owner,
                    event,
                    now,
                    run=run,
                    instance=other_instance,
                    task=task_of(other_instance),
                    job=_only_job(run, found_instance),
                    round=int(found_instance.get("round", 0)),
                    flow=flow,
                    flow_name=name,
                    cause="time",
                    context=context,
                )
            )
        return sum(not exception.ignored for exception in await self.pipeline.handle(raised))


def _only_job(run: str, instance: Mapping[str, Any]) -> str:
    """The job of a task that has exactly one, so that actions on jobs apply to it."""
    own = ((instance.get("fan_out") or {}).get("own")) or {}
    if own.get("count") != 1 or instance.get("sizes"):
        return ""
    return job_of(run, f"{instance['id']}@{instance.get('round', 0)}", 0)
