"""Carries out the steps of exlets on the cases of other engines: each is an order, or several, and over when the engine has answered.

An item of another engine has no job of ours. What rules do to a job (try again, with other needs, by a ladder) is done to the item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.engine_case import EngineCase, retried
from forestay.domain.exceptions.incidents.ladder import (
    HOUSE,
    AfterLastLevel,
    Budgets,
    Ladder,
    Ledger,
    RetriesExhausted,
    entered,
    next_try,
)
from forestay.domain.exlets.engine_order import EngineOrder, OrderVerb, needs_as_plain, order_id
from forestay.domain.exlets.engine_order import OrderOutcome as Said
from forestay.domain.exlets.primitive import (
    Action,
    ActionTarget,
    ClimbLadder,
    Hold,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    Rollback,
    Select,
    Steer,
)
from forestay.ports.errors import NotFound
from forestay.services.exceptions.act.job_actions import ActionOutcome
from forestay.services.exceptions.engines.engine_commands import EngineCommands
from forestay.services.exceptions.record.step_log import StepRequest

DEEPEST = 32
"""Cases above a case that are told."""
MOST_CASES = 400
"""Cases of a flow that one step tells."""
_STEERED: Mapping[Action, OrderVerb] = {
    Action.REMOVE: OrderVerb.REMOVE,
    Action.SUSPEND: OrderVerb.SUSPEND,
    Action.CONTINUE: OrderVerb.CONTINUE,
    Action.RESTART: OrderVerb.RESTART,
    Action.FORCE_COMPLETE: OrderVerb.FORCE_COMPLETE,
    Action.FORCE_FAIL: OrderVerb.FORCE_FAIL,
    Action.HOLD: OrderVerb.SUSPEND,
}


@dataclass(slots=True)
class EngineActions:
    """The service; a `Performer`."""

    engines: EngineCommands
    ladders: Mapping[str, Ladder] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)

    async def __call__(self, ask: StepRequest) -> ActionOutcome:
        """Carry a step out. `Transient`: the engine has not answered yet; the order stands, and asking again gives no second one."""
        case = await self.engines.case(ask.incident.case)
        if (case.tenant, case.engine) != (ask.incident.tenant, ask.incident.engine):
            raise NotFound(f"there is no run {ask.incident.case}")
        match ask.do:
            case Steer(action, target) | Hold(target=target, action=action):
                return await self._steer(ask, case, _STEERED[action], target)
            case Rollback():
                return await self._said(ask, [_order(ask, case, OrderVerb.FORCE_FAIL)])
            case Resubmit(how, needs, wait, _) if how is not Resubmission.OTHER_DOMAIN:
                return await self._again(ask, case, wait, needs_as_plain(needs))
            case Restage(how=Restaging.SAME):
                return await self._again(ask, case, 0, {})
            case ClimbLadder(name):
                return await self._climb(ask, case, name)
            case Select(worklet):
                data = {"flow": worklet.flow, "params": dict(worklet.give)}
                return await self._said(ask, [_order(ask, case, OrderVerb.REPLACE, item=ask.incident.item, data=data)])
            case do:
                return ActionOutcome(
                    done=False, detail=f"an external engine cannot {do.action} {getattr(do, 'how', '')}".rstrip()
                )

    async def _steer(self, ask: StepRequest, case: EngineCase, verb: OrderVerb, target: ActionTarget) -> ActionOutcome:
        if target in (ActionTarget.SUBJECT, ActionTarget.JOB, ActionTarget.ITEM):
            if not ask.incident.item:
                return ActionOutcome(done=False, detail="the exception does not concern a task")
            return await self._said(ask, [_order(ask, case, verb, item=ask.incident.item)])
        cases: Sequence[EngineCase] = [case]
        if target is ActionTarget.ANCESTORS:
            cases = await self._upwards(case)
        elif target is ActionTarget.ALL_CASES:
            found = await self.engines.open_cases(case.tenant, case.engine)
            cases = [one for one in found if one.flow == case.flow]
            if len(cases) > MOST_CASES:
                return ActionOutcome(
                    done=False, detail=f"{len(cases)} runs are active; a step may address {MOST_CASES} at most"
                )
        return await self._said(ask, [_order(ask, one, verb) for one in cases])

    async def _upwards(self, case: EngineCase) -> Sequence[EngineCase]:
        found = [case]
        while found[-1].parent and len(found) < DEEPEST and found[-1].parent not in {one.id for one in found}:
            try:
                found.append(await self.engines.case(found[-1].parent))
            except NotFound:
                break  # it was never reported
        return found

    async def _again(
        self, ask: StepRequest, case: EngineCase, wait: int, needs: Mapping[str, Mapping[str, float]]
    ) -> ActionOutcome:
        incident = ask.incident
        if not incident.item:
            return ActionOutcome(done=False, detail="the exception does not concern a task")
        order = _order(ask, case, OrderVerb.RESUBMIT, item=incident.item, wait=wait, needs=needs)
        outcome = await self._said(ask, [order])
        if outcome.done:
            await self.engines.change(case.id, lambda now: retried(now or case, ask.id, incident.item, incident.cause))
        return outcome

    async def _climb(self, ask: StepRequest, case: EngineCase, name: str) -> ActionOutcome:
        incident = ask.incident
        ladder = self.ladders.get(name) if name else self.ladders.get(HOUSE.name, HOUSE)
        if ladder is None:
            return ActionOutcome(done=False, detail=f"there is no retry policy {name!r}")
        ledger = Ledger()
        for step, item, cause in case.ledger:
            if item == incident.item and step != ask.id:
                ledger = entered(ledger, cause)
        answer = next_try(ladder, ledger, incident.cause, self.budgets)
        if not isinstance(answer, RetriesExhausted):
            outcome = await self._again(ask, case, answer.wait, {})
            words = f"level {answer.level} of retry policy {ladder.name}, after {answer.wait} s"
            return outcome if outcome.detail or not outcome.done else ActionOutcome(done=True, detail=words)
        words = f"{answer.then}: {answer.reason}"
        verb, item = {
            AfterLastLevel.HOLD: (OrderVerb.SUSPEND, incident.item),
            AfterLastLevel.FAIL: (OrderVerb.FORCE_FAIL, incident.item),
            AfterLastLevel.ROLLBACK: (OrderVerb.FORCE_FAIL, ""),
        }[answer.then]
        outcome = await self._said(ask, [_order(ask, case, verb, item=item)])
        return ActionOutcome(done=True, detail=words) if outcome.done else outcome

    async def _said(self, ask: StepRequest, orders: Sequence[EngineOrder]) -> ActionOutcome:
        """Give the orders, all of them first, and wait for the answers. Done if every one was obeyed."""
        given: list[EngineOrder] = []
        for order in orders:
            try:
                await self.engines.give(order)
            except NotFound:
                if len(orders) == 1:
                    return ActionOutcome(done=False, detail="the run has ended")
                continue
            given.append(order)
        answers = [await self.engines.send(order) for order in given]
        refused = [answer for answer in answers if answer.outcome is Said.REFUSED]
        if refused:
            return ActionOutcome(done=False, detail=refused[0].detail or "the engine refused the command")
        return ActionOutcome(done=True, detail=next((one.detail for one in answers if one.detail), ""))


def _order(
    ask: StepRequest,
    case: EngineCase,
    verb: OrderVerb,
    *,
    item: str = "",
    wait: int = 0,
    needs: Mapping[str, Mapping[str, float]] | None = None,
    data: Mapping[str, object] | None = None,
) -> EngineOrder:
    incident = ask.incident
    holding = verb in (OrderVerb.SUSPEND, OrderVerb.CONTINUE)
    return EngineOrder(
        id=order_id(case.id, ask.id),
        case=case.id,
        key=case.key,
        verb=verb,
        at=ask.at,
        item=item,
        holder=(ask.release or ask.id) if holding else "",
        wait=wait,
        needs=needs or {},
        data=data or {},
        by="exlet",
        reason=f"incident {incident.id}",
        incident=incident.id,
        step=ask.id,
    )
