"""How a client that has reported an event carries out the reply: decided here, carried out by the clients.

A task (or the whole run) waits while its incident is being handled. Orders are taken in their order, each once. The wait is over when an order says what becomes of the task, or when
the incident is closed without such an order: then the client goes on as it would have without an exception service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forestay.client.api.schemas import OrderJson, ToldIncident


class GoOn(NamedTuple):
    """No command: the client continues as it would without Forestay."""

    words: str = ""


class Retry(NamedTuple):
    """Run the task again after this many seconds."""

    wait: int
    needs: Mapping[str, Mapping[str, float]]
    data: Mapping[str, object]


class Complete(NamedTuple):
    """The task counts as done; this is what it came to."""

    result: object


class Fail(NamedTuple):
    """The task has failed, and is not tried again."""

    reason: str


class Remove(NamedTuple):
    """The task or the run is to stop."""

    reason: str
    whole_run: bool


Verdict = GoOn | Retry | Complete | Fail | Remove


class CommandAnswer(NamedTuple):
    """What is answered to an order."""

    order: str
    outcome: str
    detail: str = ""


@dataclass(slots=True)
class CommandState:
    """What orders have done to one run of a client: its data, who holds it or its tasks, what becomes of tasks that wait."""

    data: dict[str, object] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    """By task; under the empty name those who hold the run."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    """Tasks that wait; the empty name: the run itself."""
    obeyed: dict[str, CommandAnswer] = field(default_factory=dict)

    def take(self, orders: Sequence[OrderJson]) -> list[CommandAnswer]:
        """Accept orders; returns the answer to each, also to repeated ones."""
        answers = []
        for order in orders:
            known = self.obeyed.get(order["id"])
            if known is None:
                known = self.obeyed[order["id"]] = self._obey(order)
            answers.append(known)
        return answers

    def over(self, task: str, incident: ToldIncident | None) -> Verdict | None:
        """What becomes of a task that waits; ``None``: it waits on."""
        for_all = self.verdicts.get("")
        if isinstance(for_all, Remove | Fail):
            return for_all
        verdict = self.verdicts.get(task)
        if self.holders.get("") or (verdict is None and self.holders.get(task)):
            return None
        if verdict is not None:
            del self.verdicts[task]
            return verdict
        if incident is not None and incident["closed"]:
            return GoOn(incident["words"])
        return None

    def _obey(self, order: OrderJson) -> CommandAnswer:
        verb, task, name = order["verb"], order["task"], order["id"]
        if verb == "set-data":
            self.data |= order["data"]
        elif verb == "suspend":
            self.holders.setdefault(task, set()).add(order["holder"])
        elif verb == "continue":
            self.holders.get(task, set()).discard(order["holder"])
        elif task and task not in self.waiting:
            return CommandAnswer(name, "refused", f"{task} is not waiting")
        elif verb == "remove":
            self._rule(task, Remove(order["reason"], whole_run=not task))
        elif verb == "force-fail":
            self._rule(task, Fail(order["reason"]))
        elif not task:
            return CommandAnswer(name, "refused", f"{verb} is not supported by this client for a whole run")
        elif verb in ("force-complete", "skip"):
            self._rule(task, Complete(order["data"].get("result")))
        elif verb in ("restart", "redo", "resubmit") or (verb == "replace" and "flow" not in order["data"]):
            self._rule(task, Retry(order["wait"], order["needs"], order["data"]))
        else:
            return CommandAnswer(name, "refused", f"this client cannot {verb}")
        return CommandAnswer(name, "done")

    def _rule(self, task: str, verdict: Verdict) -> None:
        """Apply a verdict on a task; it ends the task's own suspension."""
        self.holders.pop(task, None)
        self.verdicts[task] = verdict
