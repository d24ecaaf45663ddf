"""Replaces a worklet that runs by the one that the rules choose now: the rules are asked first, and only then is anything stopped.

So an item is never left without a worklet because no rule answered. The swap itself is one verb on the case, which takes it once: the old worklet's case is
cancelled and the new one started by the case itself, whatever happens to whoever asked.
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
    """What became of the wish to replace a worklet."""

    done: bool
    detail: str
    flow: str = ""
    """The version of the flow that runs in the item's place now."""


@dataclass(slots=True)
class WorkletReplacement:
    """The service."""

    engine: FlowEngine
    flows: FlowStore
    worklets: Worklets

    async def replace(self, tenant: str, case: str, item: str, *, order: str, at: int, by: str) -> Replaced:
        """Choose anew for an item of a case, and swap if the choice is another. ``order`` and ``at`` are the same in every repeat.

        `NotFound` if there is no such case.
        """
        if (await self.engine.describe(case)).tenant != tenant:
            raise NotFound(f"there is no run {case}")
        state = await self.engine.state(case)
        plan = await self.flows.plan(tenant, state["version"])
        run = FlowRun.from_plain(plan, state)
        found = run.items.get(item)
        if found is None:
            return Replaced(done=False, detail=f"the run has no task {item}")
        task = plan.tasks.get(found.task)
        pattern = task.task.pattern if task is not None else None
        if not isinstance(pattern, WorkletPattern):
            return Replaced(done=False, detail="the task is not late-bound")
        if found.ended:
            return Replaced(done=False, detail=f"the task has already ended: {found.state}")
        running = str(found.changes.get("flow") or found.bound)
        params = filled_map(pattern.params, values_for(RunUpdate(run, at), found))
        chosen = await self.worklets.bound(tenant, pattern.place, case=case, params=params)
        if chosen is None:
            return Replaced(done=False, detail="no worklet is chosen now; the running one continues", flow=running)
        if chosen.flow == running:
            return Replaced(done=False, detail="the same worklet is chosen; the running one continues", flow=running)
        changes = {"flow": chosen.flow, "params": dict(chosen.params)}
        verb = Verb(at, order, VerbKind.REPLACE, item=item, by=by, reason="another worklet is chosen", changes=changes)
        answer = await self.engine.send_verb(case, verb)
        return Replaced(answer.accepted, answer.detail, chosen.flow if answer.accepted else running)
