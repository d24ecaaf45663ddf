"""Timeouts of cases and items (paper P1, section 4.1): the rules see the item whose time is over and every item that runs in parallel to it.

A rule of a task's own tree is asked for each of them. A rule for any task is asked for the one whose time is over alone. What the flow itself says of a deadline
(``then: report`` or ``fail``) is done by the case; this comes beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.execution.case_names import job_of
from forestay.ports.clock import Clock
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.exceptions.detect.constraint_checker import task_of
from forestay.services.exceptions.detect.exception_event import ExceptionEvent
from forestay.services.exceptions.exception_handler import ExceptionHandler
from forestay.services.flows.case_context import case_context, item_in
from forestay.services.flows.flow_store import FlowStore

TIMEOUT = ExceptionType.TIMEOUT
LATE = frozenset({"item-late", "case-late"})
"""What a case reports when a deadline has passed."""
UNDER_WAY = frozenset({"listing", "binding", "running", "faulted"})


@dataclass(slots=True)
class TimeoutDetector:
    """The service."""

    answers: ExceptionHandler
    flows: FlowStore
    engine: FlowEngine
    clock: Clock

    async def late(self, *, tenant: str, owner: str, case: str, flow: str, item: str, event: str) -> int:
        """A deadline has passed: of an item, or with an empty ``item`` of the case. How many exceptions were answered."""
        name = await self.flows.name(tenant, flow)
        await self.answers.get_ready()
        answers = self.answers
        state = await self.engine.state(case)
        beside = [
            str(one["id"])
            for one in state["items"]
            if one["id"] != item
            and one.get("state", "waiting") in UNDER_WAY
            and answers.has_rules(tenant, name, TIMEOUT, task_of(str(one["id"])), own=True)
        ]
        first = [item] if answers.wanted(tenant, name, TIMEOUT, task_of(item)) else []
        now = self.clock.now()
        raised = []
        for one in (*first, *beside):
            context = case_context(state, now, item=one)
            context["exception"] = {"item": item}
            found = item_in(state, one) or {}
            raised.append(
                ExceptionEvent(
                    TIMEOUT,
                    tenant,
                    owner,
                    event,
                    now,
                    case=case,
                    item=one,
                    task=task_of(one),
                    job=_only_job(case, found),
                    round=int(found.get("round", 0)),
                    flow=flow,
                    flow_name=name,
                    cause="time",
                    context=context,
                )
            )
        return sum(not one.ignored for one in await answers.answer(raised))


def _only_job(case: str, item: Mapping[str, Any]) -> str:
    """The job of an item that has one and no more, so that what is done to jobs can be done to it."""
    own = ((item.get("fan") or {}).get("own")) or {}
    if own.get("count") != 1 or item.get("sizes"):
        return ""
    return job_of(case, f"{item['id']}@{item.get('round', 0)}", 0)
