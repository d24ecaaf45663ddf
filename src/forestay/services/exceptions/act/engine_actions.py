"""Playbook actions on the runs of other engines: each is one or more commands, and is done when the engine has replied.

A task of another engine has no job here. Actions of rules on a job (retry, change resources, apply a retry policy) are applied to the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.engine_run import EngineRun, retried
from forestay.domain.exceptions.incidents.retry_policy import (
    DEFAULT_POLICY,
    AfterLastLevel,
    Budgets,
    Ledger,
    LevelledRetryPolicy,
    RetriesExhausted,
    entered,
    next_try,
)
from forestay.domain.playbooks.action import (
    ActionKind,
    ActionTarget,
    Hold,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    RetryByPolicy,
    Rollback,
    Select,
    Steer,
)
from forestay.domain.playbooks.engine_order import EngineOrder, OrderVerb, needs_as_plain, order_id
from forestay.domain.playbooks.engine_order import OrderOutcome as Said
from forestay.ports.errors import NotFound
from forestay.services.exceptions.act.job_actions import ActionOutcome
from forestay.services.exceptions.engines.engine_commands import EngineCommands
from forestay.services.exceptions.record.decision_log import StepRequest

DEEPEST = 32
"""The most runs above a run that get a command."""
MOST_RUNS = 400
"""The most runs of a flow that get a command of one step."""
_STEERED: Mapping[ActionKind, OrderVerb] = {
    ActionKind.REMOVE: OrderVerb.REMOVE,
    ActionKind.SUSPEND: OrderVerb.SUSPEND,
    ActionKind.CONTINUE: OrderVerb.CONTINUE,
    ActionKind.RESTART: OrderVerb.RESTART,
    ActionKind.FORCE_COMPLETE: OrderVerb.FORCE_COMPLETE,
    ActionKind.FORCE_FAIL: OrderVerb.FORCE_FAIL,
    ActionKind.HOLD: OrderVerb.SUSPEND,
}


@dataclass(slots=True)
class EngineActions:
    """The service; a `Performer`."""

    engines: EngineCommands
    retry_policies: Mapping[str, LevelledRetryPolicy] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)

    async def __call__(self, ask: StepRequest) -> ActionOutcome:
        """Carry out a step. `Transient`: the engine has not replied yet; the command is still valid, and a repeat sends no second one."""
        run = await self.engines.find_run(ask.incident.run)
        if (run.tenant, run.engine) != (ask.incident.tenant, ask.incident.engine):
            raise NotFound(f"there is no run {ask.incident.run}")
        match ask.do:
            case Steer(action, target) | Hold(target=target, action=action):
                return await self._steer(ask, run, _STEERED[action], target)
            case Rollback():
                return await self._said(ask, [_order(ask, run, OrderVerb.FORCE_FAIL)])
            case Resubmit(how, needs, wait, _) if how is not Resubmission.OTHER_DOMAIN:
                return await self._again(ask, run, wait, needs_as_plain(needs))
            case Restage(how=Restaging.SAME):
                return await self._again(ask, run, 0, {})
            case RetryByPolicy(name):
                return await self._climb(ask, run, name)
            case Select(worklet):
                data = {"flow": worklet.flow, "params": dict(worklet.give)}
                return await self._said(
                    ask, [_order(ask, run, OrderVerb.REPLACE, instance=ask.incident.instance, data=data)]
                )
            case do:
                return ActionOutcome(
                    done=False, detail=f"an external engine cannot {do.action} {getattr(do, 'how', '')}".rstrip()
                )

    async def _steer(self, ask: StepRequest, run: EngineRun, verb: OrderVerb, target: ActionTarget) -> ActionOutcome:
        if target in (ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.TASK):
            if not ask.incident.instance:
                return ActionOutcome(done=False, detail="the exception does not concern a task")
            return await self._said(ask, [_order(ask, run, verb, instance=ask.incident.instance)])
        runs: Sequence[EngineRun] = [run]
        if target is ActionTarget.ANCESTORS:
            runs = await self._upwards(run)
        elif target is ActionTarget.ALL_RUNS:
            found_runs = await self.engines.open_runs(run.tenant, run.engine)
            runs = [engine_run for engine_run in found_runs if engine_run.flow == run.flow]
            if len(runs) > MOST_RUNS:
                return ActionOutcome(
                    done=False, detail=f"{len(runs)} runs are active; a step may address {MOST_RUNS} at most"
                )
        return await self._said(ask, [_order(ask, engine_run, verb) for engine_run in runs])

    async def _upwards(self, run: EngineRun) -> Sequence[EngineRun]:
        runs = [run]
        while runs[-1].parent and len(runs) < DEEPEST and runs[-1].parent not in {engine_run.id for engine_run in runs}:
            try:
                runs.append(await self.engines.find_run(runs[-1].parent))
            except NotFound:
                break  # it was never reported
        return runs

    async def _again(
        self, ask: StepRequest, run: EngineRun, wait: int, needs: Mapping[str, Mapping[str, float]]
    ) -> ActionOutcome:
        incident = ask.incident
        if not incident.instance:
            return ActionOutcome(done=False, detail="the exception does not concern a task")
        order = _order(ask, run, OrderVerb.RESUBMIT, instance=incident.instance, wait=wait, needs=needs)
        outcome = await self._said(ask, [order])
        if outcome.done:
            await self.engines.change(
                run.id, lambda now: retried(now or run, ask.id, incident.instance, incident.cause)
            )
        return outcome

    async def _climb(self, ask: StepRequest, run: EngineRun, name: str) -> ActionOutcome:
        incident = ask.incident
        retry_policy = (
            self.retry_policies.get(name) if name else self.retry_policies.get(DEFAULT_POLICY.name, DEFAULT_POLICY)
        )
        if retry_policy is None:
            return ActionOutcome(done=False, detail=f"there is no retry policy {name!r}")
        ledger = Ledger()
        for step, instance, cause in run.ledger:
            if instance == incident.instance and step != ask.id:
                ledger = entered(ledger, cause)
        answer = next_try(retry_policy, ledger, incident.cause, self.budgets)
        if not isinstance(answer, RetriesExhausted):
            outcome = await self._again(ask, run, answer.wait, {})
            words = f"level {answer.level} of retry policy {retry_policy.name}, after {answer.wait} s"
            return outcome if outcome.detail or not outcome.done else ActionOutcome(done=True, detail=words)
        words = f"{answer.then}: {answer.reason}"
        verb, instance = {
            AfterLastLevel.HOLD: (OrderVerb.SUSPEND, incident.instance),
            AfterLastLevel.FAIL: (OrderVerb.FORCE_FAIL, incident.instance),
            AfterLastLevel.ROLLBACK: (OrderVerb.FORCE_FAIL, ""),
        }[answer.then]
        outcome = await self._said(ask, [_order(ask, run, verb, instance=instance)])
        return ActionOutcome(done=True, detail=words) if outcome.done else outcome

    async def _said(self, ask: StepRequest, orders: Sequence[EngineOrder]) -> ActionOutcome:
        """Send all commands, then wait for the replies. Done if every command was obeyed."""
        given_orders: list[EngineOrder] = []
        for order in orders:
            try:
                await self.engines.give(order)
            except NotFound:
                if len(orders) == 1:
                    return ActionOutcome(done=False, detail="the run has ended")
                continue
            given_orders.append(order)
        answers = [await self.engines.send(order) for order in given_orders]
        refused = [answer for answer in answers if answer.outcome is Said.REFUSED]
        if refused:
            return ActionOutcome(done=False, detail=refused[0].detail or "the engine refused the command")
        return ActionOutcome(done=True, detail=next((answer.detail for answer in answers if answer.detail), ""))


def _order(
    ask: StepRequest,
    run: EngineRun,
    verb: OrderVerb,
    *,
    instance: str = "",
    wait: int = 0,
    needs: Mapping[str, Mapping[str, float]] | None = None,
    data: Mapping[str, object] | None = None,
) -> EngineOrder:
    incident = ask.incident
    holding = verb in (OrderVerb.SUSPEND, OrderVerb.CONTINUE)
    return EngineOrder(
        id=order_id(run.id, ask.id),
        run=run.id,
        key=run.key,
        verb=verb,
        at=ask.at,
        instance=instance,
        holder=(ask.release or ask.id) if holding else "",
        wait=wait,
        needs=needs or {},
        data=data or {},
        by="playbook",
        reason=f"incident {incident.id}",
        incident=incident.id,
        step=ask.id,
    )
