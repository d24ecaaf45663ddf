"""The activities that check constraints of runs and tasks, and that report what happened to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio import activity

from forestay.adapters.temporal.activity_errors import refusing
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.execution.constraints import EXCEPTION
from forestay.domain.flows.execution.messages import order_from_plain
from forestay.services.exceptions.detect.constraint_checker import ConstraintChecker
from forestay.services.exceptions.detect.timeout_detector import LATE, TimeoutDetector
from forestay.services.flows.flow_checks import InstanceRound


@dataclass(slots=True)
class CheckActivities:
    """Bound to the service of one orchestrator."""

    constraints: ConstraintChecker
    timeouts: TimeoutDetector

    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.has_rules, self.check_round, self.check_run)

    @activity.defn(name="has_rules")
    async def has_rules(self, payload: Plain) -> bool:
        """Whether any rule could answer: local, and nearly always by what is in memory."""
        return await self.constraints.asked(
            payload["tenant"], payload["flow"], ExceptionType(payload["kind"]), payload.get("task", "")
        )

    @activity.defn(name="check_round")
    async def check_round(self, payload: Plain) -> str:
        """The incident that keeps a round from beginning or completing; empty: it may."""
        order = order_from_plain(payload["order"])
        flow_ref: tuple[str, str, str, str] = (payload["tenant"], payload["owner"], payload["run"], payload["flow"])
        instance_round = InstanceRound(*flow_ref, order.work, order.instance, order.task)
        with refusing():
            if payload["kind"] == ExceptionType.TASK_PRE:
                return await self.constraints.instance_begins(instance_round, dict(order.scope))
            return await self.constraints.instance_ends(instance_round, payload["data"])

    @activity.defn(name="check_run")
    async def check_run(self, payload: Plain) -> str:
        """The incident that keeps a run from completing; empty: it may."""
        known = {name: payload[name] for name in ("tenant", "owner", "run", "flow", "outputs", "times")}
        with refusing():
            return await self.constraints.run_ends(**known)

    async def reported(self, payload: Plain) -> None:
        """Handle a report of a run; exceptions that rules may answer are answered."""
        if payload["kind"] == EXCEPTION:
            await self.constraints.go_on(payload["detail"])
        elif payload["kind"] in LATE:
            known = {name: payload[name] for name in ("tenant", "owner", "run", "flow")}
            await self.timeouts.late(**known, instance=payload["task"], event=payload["id"])
