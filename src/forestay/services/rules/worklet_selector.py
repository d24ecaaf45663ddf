"""Evaluates the selection rules for the worklet of a late-bound task; it implements `WorkletChooser` of `worklet_bindings`.

The tree is that of the task, in the flow's own rule set first, then the domain's, then the packs'. A rule sees the run's data, the state of each task, and as the
task's data what the task passes to the worklet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.flow_pattern import WorkletPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.playbooks.playbook import Playbook
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import read_context
from forestay.ports.errors import Permanent
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_store import RuleCache

FRESH = 0.5
"""The greatest age in seconds of the copy of the rules."""


@dataclass(slots=True)
class WorkletSelector:
    """The service."""

    rules: RuleCache
    playbooks: PlaybookStore
    flows: FlowStore
    engine: FlowEngine

    async def __call__(
        self, tenant: str, late_bound: str, *, run: str, params: Mapping[str, object]
    ) -> tuple[str, Playbook] | None:
        """The rule that answers, and its playbook; None: none does. `Permanent` if a rule errs, or its conclusion cannot be run."""
        if self.rules.age > FRESH:
            await self.rules.refresh()
        known = await self.engine.describe(run)
        plan = await self.flows.plan(tenant, known.version)
        task = task_at(plan, late_bound)
        if not self.rules.has_tree(tenant, known.name, ExceptionType.SELECTION, task):
            return None
        state = await self.engine.state(run)
        instances = {str(instance["id"]): str(instance.get("state", "waiting")) for instance in state["instances"]}
        facts = {
            "exception": {"type": ExceptionType.SELECTION.value, "task": task},
            "run": {"id": run, "flow": known.name, "version": known.version, "data": dict(state["params"])},
            "task": {"name": task, "status": instances.get(task, "waiting"), "data": dict(params)},
            "tasks": instances,
        }
        context, _ = read_context(facts)
        ruling = self.rules.decide(tenant, known.name, ExceptionType.SELECTION, task, context).active
        if ruling.verdict is ConditionVerdict.FALSE or ruling.by is None:
            return None
        if ruling.verdict is ConditionVerdict.ERROR:
            message = ruling.by.walk.path[-1].message
            raise Permanent(
                f"rule {ruling.flagged} of {ruling.by.rule_set} has an evaluation error ({message}); no worklet is chosen"
            )
        name = f"{ruling.by.rule_set}#{ruling.rule}"
        playbook = await self.playbooks.concluded(tenant, ruling.conclusion, ExceptionType.SELECTION)
        if isinstance(playbook, str):
            raise Permanent(f"rule {name} does not conclude a worklet: {playbook}")
        return name, playbook


def task_at(plan: FlowPlan, late_bound: str) -> str:
    """The task with this late-bound name; where several have it, or none is known in advance, the name itself."""
    names = [
        name
        for name, task in plan.tasks.items()
        if isinstance(task.task.pattern, WorkletPattern) and task.task.pattern.late_bound == late_bound
    ]
    return names[0] if len(names) == 1 else late_bound
