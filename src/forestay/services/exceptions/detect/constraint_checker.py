"""Looks whether cases and items may begin and end: the four constraints of paper P1, asked where batches cross between a case and its jobs.

Where no rule set has a tree for a constraint nothing is asked, written or waited for; whether there is one is known in memory. Where there is one, the case is asked
for its data and the rules decide. If a rule concludes, the incident and its decision are written down, and the case is told to wait: it then asks itself to have the
answer carried out (`go_on`), so that nothing is done about it before it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED
from forestay.domain.flows.execution.case_names import item_of
from forestay.domain.jobs.job_document import FlowRef
from forestay.ports.clock import Clock
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.exceptions.detect.exception_event import ExceptionEvent
from forestay.services.exceptions.exception_handler import ExceptionHandler
from forestay.services.flows.case_context import case_context, item_in
from forestay.services.flows.flow_store import FlowStore

ITEM_PRE, ITEM_POST = ExceptionType.ITEM_PRE, ExceptionType.ITEM_POST
CASE_PRE, CASE_POST = ExceptionType.CASE_PRE, ExceptionType.CASE_POST


@dataclass(frozen=True, slots=True)
class ItemRound:
    """The round of an item that is to begin or to end."""

    tenant: str
    owner: str
    case: str
    flow: str
    """The flow's version."""
    work: str
    item: str
    task: str

    @property
    def number(self) -> int:
        return item_of(self.work)[1]


@dataclass(slots=True)
class ConstraintChecker:
    """The service."""

    answers: ExceptionHandler
    flows: FlowStore
    engine: FlowEngine
    clock: Clock

    async def asked(self, tenant: str, flow: str, kind: ExceptionType, task: str = "") -> bool:
        """Whether any rule could say something; up to half a second old."""
        await self.answers.get_ready()
        return self.answers.has_rules(tenant, await self.flows.name(tenant, flow), kind, task)

    async def item_begins(self, one: ItemRound, data: Mapping[str, object]) -> str:
        """The incident for which a round may not begin; empty: it may. ``data``: what its task refers to."""
        if not await self.asked(one.tenant, one.flow, ITEM_PRE, one.task):
            return ""
        return await self._item(ITEM_PRE, one, data)

    async def item_ends(self, one: ItemRound, data: Mapping[str, object]) -> str:
        """The incident for which a round that is done may not end; empty: it may. ``data``: what it came to."""
        if not await self.asked(one.tenant, one.flow, ITEM_POST, one.task):
            return ""
        return await self._item(ITEM_POST, one, data)

    async def job_ended(self, tenant: str, owner: str, tie: FlowRef, bad: int, data: Mapping[str, object]) -> str:
        """The same, for a round whose last job has ended; ``bad``: the jobs that the case does not know to have ended badly."""
        item, number = item_of(tie.work)
        if not number:
            return ""  # a compensation
        task = task_of(item)
        if not await self.asked(tenant, tie.flow, ITEM_POST, task):
            return ""
        state = await self._state(tie.case)
        found = item_in(state, item)
        own = ((found or {}).get("fan") or {}).get("own") or {}
        all_bad = (int(str(own.get("bad", "0")), 16) | bad).bit_count()
        plan = await self.flows.plan(tenant, tie.flow)
        place = plan.tasks.get(task)
        if found is None or (place is not None and all_bad > place.task.tolerate):
            return ""  # it fails, and does not complete
        one = ItemRound(tenant, owner, tie.case, tie.flow, tie.work, item, task)
        return await self._item(ITEM_POST, one, data, state)

    async def _item(
        self, kind: ExceptionType, one: ItemRound, data: Mapping[str, object], state: Mapping[str, Any] | None = None
    ) -> str:
        state = state if state is not None else await self._state(one.case)
        context = case_context(state, self.clock.now(), item=one.item)
        context["item"] = {**context.get("item", {}), "data": dict(data), "round": one.number}
        return await self._decided(kind, one, await self.flows.name(one.tenant, one.flow), one.work, context)

    async def case_begins(
        self, *, tenant: str, owner: str, case: str, flow: str, name: str, params: Mapping[str, object]
    ) -> str:
        """The incident for which a case may not begin; empty: it may."""
        await self.answers.get_ready()
        if not self.answers.has_rules(tenant, name, CASE_PRE):
            return ""
        context: dict[str, Any] = {"case": {"data": dict(params)}}
        one = ItemRound(tenant, owner, case, flow, "", "", "")
        return await self._decided(CASE_PRE, one, name, "start", context)

    async def case_ends(
        self, *, tenant: str, owner: str, case: str, flow: str, outputs: Mapping[str, object], times: int
    ) -> str:
        """The incident for which a case that is done may not end; empty: it may."""
        state = await self._state(case)
        context = case_context(state, self.clock.now())
        context["case"]["data"] = {**context["case"]["data"], "outputs": dict(outputs)}
        one = ItemRound(tenant, owner, case, flow, "", "", "")
        return await self._decided(CASE_POST, one, await self.flows.name(tenant, flow), f"end-{times}", context)

    async def _decided(
        self, kind: ExceptionType, one: ItemRound, name: str, event: str, context: Mapping[str, Any]
    ) -> str:
        raised = ExceptionEvent(
            kind,
            one.tenant,
            one.owner,
            event,
            self.clock.now(),
            case=one.case,
            item=one.item,
            task=one.task,
            round=one.number if one.work else 0,
            flow=one.flow,
            flow_name=name,
            context=context,
        )
        (answer,) = await self.answers.record([raised])
        return "" if answer.ignored else answer.incident

    async def _state(self, case: str) -> Mapping[str, Any]:
        return await self.engine.state(case)

    async def go_on(self, incident: str) -> None:
        """The case waits: carry out what was decided. One whose answer is over already need not wait any more."""
        await self.answers.carry_out([incident])
        standing = (await self.answers.incidents.get_standings([incident])).get(incident)
        if standing is not None and standing.standing.state in CLOSED and self.answers.acting.exlets is not None:
            await self.answers.acting.exlets.lift(incident)


def task_of(item: str) -> str:
    """The task of an item: inside loops and choices its name comes after the round that it is in."""
    return item.rpartition("/")[2]
