"""A suspension: an instruction to all runs of a flow. One small document for each tenant and version of a flow.

It has two parts. *Holders* suspend every run, including those that start later. *Orders* are verbs for every run that had begun by then; until all
have received them, the suspension is closed, so that none of their jobs begins meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.messages import as_plain, from_plain
from forestay.domain.flows.execution.scope import size_of
from forestay.domain.flows.execution.verbs import MAX_CHANGES
from forestay.domain.jobs.steering import MAX_HOLDERS

MAX_ORDERS = 20
"""The most orders that are passed on at the same time."""
MAX_PASSED = 100
"""The number of order ids that are kept: a repeated order is answered and changes nothing."""


@dataclass(frozen=True, slots=True)
class FlowSuspension:
    """All runs of one version of a flow."""

    flow: str
    holders: tuple[str, ...] = ()
    orders: tuple[Verb, ...] = ()
    passed: tuple[str, ...] = ()
    """Orders that every run has received, the newest last."""

    @property
    def closed(self) -> bool:
        """Whether no job of these runs may begin. Raising an exception stops nothing."""
        return bool(self.holders) or any(order.kind is not VerbKind.RAISE for order in self.orders)

    def hold(self, holder: str) -> FlowSuspension | str:
        """The suspension with one more holder, or why not."""
        after = tuple(sorted({*self.holders, holder}))
        if len(after) > MAX_HOLDERS:
            return f"{len(self.holders)} holders already suspended the flow"
        return replace(self, holders=after)

    def let_go(self, holder: str) -> FlowSuspension:
        return replace(self, holders=tuple(other_holder for other_holder in self.holders if other_holder != holder))

    def order(self, verb: Verb) -> FlowSuspension | str:
        """The suspension with one more order, or why not; a known order changes nothing."""
        if verb.id in self.passed or any(order.id == verb.id for order in self.orders):
            return self
        if size_of(verb.changes) > MAX_CHANGES:
            return f"the changes are larger than {MAX_CHANGES} bytes"
        if len(self.orders) >= MAX_ORDERS:
            return f"{len(self.orders)} commands are already being sent to the runs of the flow"
        return replace(self, orders=(*self.orders, verb))

    def pass_on(self, verb: str) -> FlowSuspension:
        """Every run has received the order."""
        left = tuple(order for order in self.orders if order.id != verb)
        return replace(self, orders=left, passed=(*self.passed, verb)[-MAX_PASSED:])

    def as_plain(self) -> dict[str, Any]:
        out: dict[str, Any] = {"flow": self.flow, "holders": list(self.holders)}
        if self.orders:
            out["orders"] = [as_plain(order) for order in self.orders]
        if self.passed:
            out["passed"] = list(self.passed)
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> FlowSuspension:
        orders = [from_plain(order) for order in data.get("orders", ())]
        verbs = tuple(order for order in orders if isinstance(order, Verb))
        return cls(data["flow"], tuple(data["holders"]), verbs, tuple(data.get("passed", ())))
