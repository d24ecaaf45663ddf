"""What cases have looked at outside: whether they, and their items, may begin and end; and whom they tell of what happened to them."""

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
from forestay.services.exceptions.detect.constraint_checker import ConstraintChecker, ItemRound
from forestay.services.exceptions.detect.timeout_detector import LATE, TimeoutDetector


@dataclass(slots=True)
class CheckActivities:
    """Bound to the service of one worker."""

    constraints: ConstraintChecker
    timeouts: TimeoutDetector

    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.has_rules, self.check_round, self.check_case)

    @activity.defn(name="has_rules")
    async def has_rules(self, given: Plain) -> bool:
        """Whether any rule could answer: local, and nearly always by what is in memory."""
        return await self.constraints.asked(
            given["tenant"], given["flow"], ExceptionType(given["kind"]), given.get("task", "")
        )

    @activity.defn(name="check_round")
    async def check_round(self, given: Plain) -> str:
        """The incident for which a round may not begin, or not end; empty: it may."""
        order = order_from_plain(given["order"])
        tie: tuple[str, str, str, str] = (given["tenant"], given["owner"], given["case"], given["flow"])
        one = ItemRound(*tie, order.work, order.item, order.task)
        with refusing():
            if given["kind"] == ExceptionType.ITEM_PRE:
                return await self.constraints.item_begins(one, dict(order.scope))
            return await self.constraints.item_ends(one, given["data"])

    @activity.defn(name="check_case")
    async def check_case(self, given: Plain) -> str:
        """The incident for which a case may not end; empty: it may."""
        known = {name: given[name] for name in ("tenant", "owner", "case", "flow", "outputs", "times")}
        with refusing():
            return await self.constraints.case_ends(**known)

    async def reported(self, given: Plain) -> None:
        """A case has told of something; what rules may answer is answered."""
        if given["kind"] == EXCEPTION:
            await self.constraints.go_on(given["detail"])
        elif given["kind"] in LATE:
            known = {name: given[name] for name in ("tenant", "owner", "case", "flow", "item")}
            await self.timeouts.late(**known, event=given["id"])
