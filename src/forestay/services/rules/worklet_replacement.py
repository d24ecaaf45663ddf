"""Replaces a running worklet by the one that the rules choose now: the rules are evaluated first, and only then is anything stopped.

So a task is never left without a worklet because no rule answered. The swap itself is one verb on the run, which executes it once: the run itself cancels
the old worklet's run and starts the new one, whatever happens to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.flows.definition.flow_pattern import WorkletPattern
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.flow_run import FlowRun
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import filled_map, values_for
from forestay.ports.errors import NotFound
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.ports.rules.worklets import Worklets
from forestay.services.flows.flow_store import FlowStore


class Replaced(NamedTuple):
    """The outcome of a request to replace a worklet."""

    done: bool
    detail: str
    flow: str = ""
    """The version of the flow that runs for the task now."""


@dataclass(slots=True)
class WorkletReplacement:
    """The service."""

    engine: FlowEngine
    flows: FlowStore
    worklets: Worklets

    async def replace(self, tenant: str, run: str, instance: str, *, order: str, at: int, by: str) -> Replaced:
        """Choose again for a task of a run, and swap if the choice differs. ``order`` and ``at`` are the same in every repeat.

        `NotFound` if there is no such run.
        """
        if (await self.engine.describe(run)).tenant != tenant:
            raise NotFound(f"there is no run {run}")
        state = await self.engine.state(run)
        plan = await self.flows.plan(tenant, state["version"])
        flow_run = FlowRun.from_plain(plan, state)
        task_instance = flow_run.instances.get(instance)
        if task_instance is None:
            return Replaced(done=False, detail=f"the run has no task {instance}")
        task = plan.tasks.get(task_instance.task)
        pattern = task.task.pattern if task is not None else None
        if not isinstance(pattern, WorkletPattern):
            return Replaced(done=False, detail="the task is not late-bound")
        if task_instance.ended:
            return Replaced(done=False, detail=f"the task has already ended: {task_instance.state}")
        running = str(task_instance.changes.get("flow") or task_instance.bound)
        params = filled_map(pattern.params, values_for(RunUpdate(flow_run, at), task_instance))
        chosen = await self.worklets.bound(tenant, pattern.late_bound, run=run, params=params)
        if chosen is None:
            return Replaced(done=False, detail="no worklet is chosen now; the running one continues", flow=running)
        if chosen.flow == running:
            return Replaced(done=False, detail="the same worklet is chosen; the running one continues", flow=running)
        changes = {"flow": chosen.flow, "params": dict(chosen.params)}
        verb = Verb(
            at, order, VerbKind.REPLACE, instance=instance, by=by, reason="another worklet is chosen", changes=changes
        )
        answer = await self.engine.send_verb(run, verb)
        return Replaced(answer.accepted, answer.detail, chosen.flow if answer.accepted else running)
