"""Carries out the steps of exlets on the cases of other engines: each is an order, or several, and over when the engine has answered.

An item of another engine has no job of ours. What rules do to a job (try again, with other needs, by a ladder) is done to the item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.engine_case import EngineCase, retried
from forestay.domain.exceptions.incidents.ladder import (
    HOUSE,
    Budgets,
    Exhausted,
    Ladder,
    Ledger,
    Then,
    entered,
    next_try,
)
from forestay.domain.exlets.engine_order import EngineOrder, OrderVerb, needs_as_plain, order_id
from forestay.domain.exlets.engine_order import Outcome as Said
from forestay.domain.exlets.primitive import (
    Action,
    ClimbLadder,
    Hold,
    Restage,
    Restaging,
    Resubmission,
    Resubmit,
    Rollback,
    Select,
    Steer,
    Target,
)
from forestay.ports.errors import NotFound
from forestay.services.exceptions.act.mend_jobs import Outcome
from forestay.services.exceptions.engines.order_engines import OrderEngines
from forestay.services.exceptions.record.step_documents import Ask

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
class SteerEngineCases:
    """The service; a `Performer`."""

    engines: OrderEngines
    ladders: Mapping[str, Ladder] = field(default_factory=dict)
    budgets: Budgets = field(default_factory=Budgets)

    async def __call__(self, ask: Ask) -> Outcome:
        """Carry a step out. `Transient`: the engine has not answered yet; the order stands, and asking again gives no second one."""
        case = await self.engines.case(ask.incident.case)
        if (case.tenant, case.engine) != (ask.incident.tenant, ask.incident.engine):
            raise NotFound(f"there is no case {ask.incident.case}")
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
                return Outcome(
                    done=False, detail=f"an engine outside cannot {do.action} {getattr(do, 'how', '')}".rstrip()
                )

    async def _steer(self, ask: Ask, case: EngineCase, verb: OrderVerb, target: Target) -> Outcome:
        if target in (Target.SUBJECT, Target.JOB, Target.ITEM):
            if not ask.incident.item:
                return Outcome(done=False, detail="the exception is not about an item")
            return await self._said(ask, [_order(ask, case, verb, item=ask.incident.item)])
        cases: Sequence[EngineCase] = [case]
        if target is Target.ANCESTORS:
            cases = await self._upwards(case)
        elif target is Target.ALL_CASES:
            found = await self.engines.open_cases(case.tenant, case.engine)
            cases = [one for one in found if one.flow == case.flow]
            if len(cases) > MOST_CASES:
                return Outcome(done=False, detail=f"{len(cases)} cases are open; a step tells {MOST_CASES} at most")
        return await self._said(ask, [_order(ask, one, verb) for one in cases])

    async def _upwards(self, case: EngineCase) -> Sequence[EngineCase]:
        found = [case]
        while found[-1].parent and len(found) < DEEPEST and found[-1].parent not in {one.id for one in found}:
            try:
                found.append(await self.engines.case(found[-1].parent))
            except NotFound:
                break  # it was never reported
        return found

    async def _again(self, ask: Ask, case: EngineCase, wait: int, needs: Mapping[str, Mapping[str, float]]) -> Outcome:
        incident = ask.incident
        if not incident.item:
            return Outcome(done=False, detail="the exception is not about an item")
        order = _order(ask, case, OrderVerb.RESUBMIT, item=incident.item, wait=wait, needs=needs)
        outcome = await self._said(ask, [order])
        if outcome.done:
            await self.engines.change(case.id, lambda now: retried(now or case, ask.id, incident.item, incident.cause))
        return outcome

    async def _climb(self, ask: Ask, case: EngineCase, name: str) -> Outcome:
        incident = ask.incident
        ladder = self.ladders.get(name) if name else self.ladders.get(HOUSE.name, HOUSE)
        if ladder is None:
            return Outcome(done=False, detail=f"there is no ladder {name!r}")
        ledger = Ledger()
        for step, item, cause in case.ledger:
            if item == incident.item and step != ask.id:
                ledger = entered(ledger, cause)
        answer = next_try(ladder, ledger, incident.cause, self.budgets)
        if not isinstance(answer, Exhausted):
            outcome = await self._again(ask, case, answer.wait, {})
            words = f"level {answer.level} of ladder {ladder.name}, after {answer.wait} s"
            return outcome if outcome.detail or not outcome.done else Outcome(done=True, detail=words)
        words = f"{answer.then}: {answer.reason}"
        verb, item = {
            Then.HOLD: (OrderVerb.SUSPEND, incident.item),
            Then.FAIL: (OrderVerb.FORCE_FAIL, incident.item),
            Then.ROLLBACK: (OrderVerb.FORCE_FAIL, ""),
        }[answer.then]
        outcome = await self._said(ask, [_order(ask, case, verb, item=item)])
        return Outcome(done=True, detail=words) if outcome.done else outcome

    async def _said(self, ask: Ask, orders: Sequence[EngineOrder]) -> Outcome:
        """Give the orders, all of them first, and wait for the answers. Done if every one was obeyed."""
        given: list[EngineOrder] = []
        for order in orders:
            try:
                await self.engines.give(order)
            except NotFound:
                if len(orders) == 1:
                    return Outcome(done=False, detail="the case has ended")
                continue
            given.append(order)
        answers = [await self.engines.send(order) for order in given]
        refused = [answer for answer in answers if answer.outcome is Said.REFUSED]
        if refused:
            return Outcome(done=False, detail=refused[0].detail or "the engine refused it")
        return Outcome(done=True, detail=next((one.detail for one in answers if one.detail), ""))


def _order(
    ask: Ask,
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
