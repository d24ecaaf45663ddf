"""Checks whether runs and tasks may start and complete: the four constraints of paper P1, evaluated when batches pass between a run and its jobs.

Where no rule set has a tree for a constraint, nothing is queried, written or awaited; this is known in memory. Where there is one, the data are requested
from the run and the rules decide. If a rule concludes, the incident and its decision are recorded, and the run is told to wait: it then requests that the
answer be carried out (`go_on`), so that nothing is done before it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED
from forestay.domain.jobs.job_document import FlowRef, instance_of, task_of
from forestay.ports.clock import Clock
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline
from forestay.services.flows.flow_checks import FlowChecks, InstanceRound
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.run_context import instance_in, run_context

TASK_PRE, TASK_POST = ExceptionType.TASK_PRE, ExceptionType.TASK_POST
RUN_PRE, RUN_POST = ExceptionType.RUN_PRE, ExceptionType.RUN_POST


@dataclass(slots=True)
class ConstraintChecker(FlowChecks):
    """The service."""

    pipeline: ExceptionPipeline
    flows: FlowStore
    engine: FlowEngine
    clock: Clock

    async def asked(self, tenant: str, flow: str, kind: ExceptionType, task: str = "") -> bool:
        """Whether any rule could conclude; up to half a second old."""
        await self.pipeline.decider.get_ready()
        return self.pipeline.decider.has_rules(tenant, await self.flows.name(tenant, flow), kind, task)

    async def instance_begins(self, instance_round: InstanceRound, data: Mapping[str, object]) -> str:
        """The incident that keeps a round from beginning; empty: it may begin. ``data``: the data that its task refers to."""
        if not await self.asked(instance_round.tenant, instance_round.flow, TASK_PRE, instance_round.task):
            return ""
        return await self._instance(TASK_PRE, instance_round, data)

    async def instance_ends(self, instance_round: InstanceRound, data: Mapping[str, object]) -> str:
        """The incident that keeps a finished round from completing; empty: it may complete. ``data``: its results."""
        if not await self.asked(instance_round.tenant, instance_round.flow, TASK_POST, instance_round.task):
            return ""
        return await self._instance(TASK_POST, instance_round, data)

    async def job_ended(self, tenant: str, owner: str, flow_ref: FlowRef, bad: int, data: Mapping[str, object]) -> str:
        """The same for a round whose last job has ended; ``bad``: the failed jobs of which the run does not know yet."""
        instance, number = instance_of(flow_ref.work)
        if not number:
            return ""  # a compensation
        task = task_of(instance)
        if not await self.asked(tenant, flow_ref.flow, TASK_POST, task):
            return ""
        state = await self._state(flow_ref.run)
        found_instance = instance_in(state, instance)
        own = ((found_instance or {}).get("fan_out") or {}).get("own") or {}
        all_bad = (int(str(own.get("bad", "0")), 16) | bad).bit_count()
        plan = await self.flows.plan(tenant, flow_ref.flow)
        place = plan.tasks.get(task)
        if found_instance is None or (place is not None and all_bad > place.task.tolerate):
            return ""  # it fails, and does not complete
        instance_round = InstanceRound(tenant, owner, flow_ref.run, flow_ref.flow, flow_ref.work, instance, task)
        return await self._instance(TASK_POST, instance_round, data, state)

    async def _instance(
        self,
        kind: ExceptionType,
        instance_round: InstanceRound,
        data: Mapping[str, object],
        state: Mapping[str, Any] | None = None,
    ) -> str:
        state = state if state is not None else await self._state(instance_round.run)
        context = run_context(state, self.clock.now(), instance=instance_round.instance)
        context["task"] = {**context.get("task", {}), "data": dict(data), "round": instance_round.number}
        return await self._decided(
            kind,
            instance_round,
            await self.flows.name(instance_round.tenant, instance_round.flow),
            instance_round.work,
            context,
        )

    async def run_begins(
        self, *, tenant: str, owner: str, run: str, flow: str, name: str, params: Mapping[str, object]
    ) -> str:
        """The incident that keeps a run from beginning; empty: it may begin."""
        await self.pipeline.decider.get_ready()
        if not self.pipeline.decider.has_rules(tenant, name, RUN_PRE):
            return ""
        context: dict[str, Any] = {"run": {"data": dict(params)}}
        instance_round = InstanceRound(tenant, owner, run, flow, "", "", "")
        return await self._decided(RUN_PRE, instance_round, name, "start", context)

    async def run_ends(
        self, *, tenant: str, owner: str, run: str, flow: str, outputs: Mapping[str, object], times: int
    ) -> str:
        """The incident that keeps a finished run from completing; empty: it may complete."""
        state = await self._state(run)
        context = run_context(state, self.clock.now())
        context["run"]["data"] = {**context["run"]["data"], "outputs": dict(outputs)}
        instance_round = InstanceRound(tenant, owner, run, flow, "", "", "")
        return await self._decided(
            RUN_POST, instance_round, await self.flows.name(tenant, flow), f"end-{times}", context
        )

    async def _decided(
        self, kind: ExceptionType, instance_round: InstanceRound, name: str, event: str, context: Mapping[str, Any]
    ) -> str:
        raised = ExceptionEvent(
            kind,
            instance_round.tenant,
            instance_round.owner,
            event,
            self.clock.now(),
            run=instance_round.run,
            instance=instance_round.instance,
            task=instance_round.task,
            round=instance_round.number if instance_round.work else 0,
            flow=instance_round.flow,
            flow_name=name,
            context=context,
        )
        (answer,) = await self.pipeline.record([raised])
        return "" if answer.ignored else answer.incident

    async def _state(self, run: str) -> Mapping[str, Any]:
        return await self.engine.state(run)

    async def go_on(self, incident: str) -> None:
        """Carry out the decision, now that the run waits. If its answer is over already, the run need not wait any more."""
        await self.pipeline.carry_out([incident])
        incidents = self.pipeline.incidents
        status = (await incidents.get_statuses([incident])).get(incident)
        known = (await incidents.get_incidents([incident])).get(incident)
        if known is not None and status is not None and status.status.state in CLOSED:
            await self.pipeline.executor.playbooks.lift(known)
