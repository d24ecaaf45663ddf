"""How a client that has reported something obeys: decided here, carried out by the clients.

An item (or the whole case) waits while its incident is being handled. Orders are taken in their order, each once. The wait is over when an order says what becomes of the item, or when
the incident is closed without such an order: then the client goes on as it would have without an exception service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.client.api.engine_calls import OrderJson, ToldIncident


class GoOn(NamedTuple):
    """Nobody wants anything else: do as you would."""

    words: str = ""


class Retry(NamedTuple):
    """Run the item again after so many seconds."""

    wait: int
    needs: Mapping[str, Mapping[str, float]]
    data: Mapping[str, object]


class Complete(NamedTuple):
    """The item counts as done; this is what it came to."""

    result: object


class Fail(NamedTuple):
    """The item has failed, and is not tried again."""

    reason: str


class Remove(NamedTuple):
    """The item or the case is to stop."""

    reason: str
    whole_case: bool


Verdict = GoOn | Retry | Complete | Fail | Remove


class CommandAnswer(NamedTuple):
    """What is answered to an order."""

    order: str
    outcome: str
    detail: str = ""


@dataclass(slots=True)
class CommandState:
    """What orders have done to one case of a client: its data, who holds it or its items, what becomes of items that wait."""

    data: dict[str, object] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    """By item; under the empty name those who hold the case."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    """Items that wait; the empty name: the case itself."""
    obeyed: dict[str, CommandAnswer] = field(default_factory=dict)

    def take(self, orders: Sequence[OrderJson]) -> list[CommandAnswer]:
        """Take orders; what is to be answered to each, also to those that were told again."""
        said = []
        for order in orders:
            known = self.obeyed.get(order["id"])
            if known is None:
                known = self.obeyed[order["id"]] = self._obey(order)
            said.append(known)
        return said

    def over(self, item: str, told: ToldIncident | None) -> Verdict | None:
        """What becomes of an item that waits; ``None``: it waits on."""
        for_all = self.verdicts.get("")
        if isinstance(for_all, Remove | Fail):
            return for_all
        verdict = self.verdicts.get(item)
        if self.holders.get("") or (verdict is None and self.holders.get(item)):
            return None
        if verdict is not None:
            del self.verdicts[item]
            return verdict
        if told is not None and told["closed"]:
            return GoOn(told["words"])
        return None

    def _obey(self, order: OrderJson) -> CommandAnswer:
        verb, item, name = order["verb"], order["item"], order["id"]
        if verb == "set-data":
            self.data |= order["data"]
        elif verb == "suspend":
            self.holders.setdefault(item, set()).add(order["holder"])
        elif verb == "continue":
            self.holders.get(item, set()).discard(order["holder"])
        elif item and item not in self.waiting:
            return CommandAnswer(name, "refused", f"{item} is not waiting")
        elif verb == "remove":
            self._rule(item, Remove(order["reason"], whole_case=not item))
        elif verb == "force-fail":
            self._rule(item, Fail(order["reason"]))
        elif not item:
            return CommandAnswer(name, "refused", f"{verb} is not supported by this client for a whole run")
        elif verb in ("force-complete", "skip"):
            self._rule(item, Complete(order["data"].get("result")))
        elif verb in ("restart", "redo", "resubmit") or (verb == "replace" and "flow" not in order["data"]):
            self._rule(item, Retry(order["wait"], order["needs"], order["data"]))
        else:
            return CommandAnswer(name, "refused", f"this client cannot {verb}")
        return CommandAnswer(name, "done")

    def _rule(self, item: str, verdict: Verdict) -> None:
        """What is said of an item itself ends its own suspension."""
        self.holders.pop(item, None)
        self.verdicts[item] = verdict
