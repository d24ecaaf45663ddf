"""Asks the rules of type selection which worklet a late-bound task of a case is to run; it fills `WorkletChooser` of `worklet_bindings`.

The tree is that of the task, in the flow's own rule set first, then the domain's, then the packs'. A rule sees the case's data, where each item stands, and as the
item's data what the task gives to the worklet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet import Exlet
from forestay.domain.flows.definition.flow_pattern import WorkletPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import read_context
from forestay.ports.errors import Permanent
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.rule_cache import RuleCache

FRESH = 0.5
"""Seconds that the copy of the rules may be old."""


@dataclass(slots=True)
class WorkletSelector:
    """The service."""

    rules: RuleCache
    exlets: PlaybookStore
    flows: FlowStore
    engine: FlowEngine

    async def __call__(
        self, tenant: str, place: str, *, case: str, params: Mapping[str, object]
    ) -> tuple[str, Exlet] | None:
        """The rule that answers, and its exlet; None: none does. `Permanent` if a rule errs, or concludes what cannot be run."""
        if self.rules.age > FRESH:
            await self.rules.refresh()
        known = await self.engine.describe(case)
        plan = await self.flows.plan(tenant, known.version)
        task = task_at(plan, place)
        if not self.rules.has_tree(tenant, known.name, ExceptionType.SELECTION, task):
            return None
        state = await self.engine.state(case)
        items = {str(one["id"]): str(one.get("state", "waiting")) for one in state["items"]}
        told = {
            "exception": {"type": ExceptionType.SELECTION.value, "task": task},
            "case": {"id": case, "flow": known.name, "version": known.version, "data": dict(state["params"])},
            "item": {"name": task, "status": items.get(task, "waiting"), "data": dict(params)},
            "items": items,
        }
        context, _ = read_context(told)
        ruling = self.rules.decide(tenant, known.name, ExceptionType.SELECTION, task, context).active
        if ruling.verdict is ConditionVerdict.FALSE or ruling.by is None:
            return None
        if ruling.verdict is ConditionVerdict.ERROR:
            said = ruling.by.walk.path[-1].message
            raise Permanent(
                f"rule {ruling.flagged} of {ruling.by.rule_set} has an evaluation error ({said}); no worklet is chosen"
            )
        name = f"{ruling.by.rule_set}#{ruling.rule}"
        exlet = await self.exlets.concluded(tenant, ruling.conclusion, ExceptionType.SELECTION)
        if isinstance(exlet, str):
            raise Permanent(f"rule {name} does not conclude a worklet: {exlet}")
        return name, exlet


def task_at(plan: FlowPlan, place: str) -> str:
    """The task that is bound late at a place; where several are, or none that is known before, the place itself."""
    found = [
        name
        for name, one in plan.tasks.items()
        if isinstance(one.task.pattern, WorkletPattern) and one.task.pattern.place == place
    ]
    return found[0] if len(found) == 1 else place
