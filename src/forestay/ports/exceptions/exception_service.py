"""The exception service as an engine sees it: the half of interface X that an engine calls. Repeats are harmless; `Transient` when it does not answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class EventReply(NamedTuple):
    """The immediate reply to an event."""

    run: str
    """The run's id in Forestay."""
    incident: str | None
    """Wait until it is closed, or until an order decides; None: continue."""
    words: str


class OrderedAction(NamedTuple):
    """An action to carry out, once however often it is sent."""

    n: int
    id: str
    key: str
    """The engine's own name of the run."""
    verb: str
    instance: str
    wait: int
    needs: Mapping[str, Mapping[str, float]]
    incident: str
    reason: str


class EngineNews(NamedTuple):
    """Waiting orders, and which of the requested incidents are closed, with a word each."""

    orders: Sequence[OrderedAction]
    closed: Mapping[str, str]


class ExceptionService(Protocol):
    """The port."""

    async def report(self, events: Sequence[Mapping[str, Any]]) -> Sequence[EventReply]:
        """Report events, in the fields of interface X; one answer each, in their order."""
        ...

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        """Orders for our runs, and the outcomes of incidents; returns at once if there is any, else after `wait` seconds."""
        ...

    async def answer(self, order: str, outcome: str, detail: str = "") -> None:
        """Report the outcome of an order: ``done`` or ``refused``."""
        ...
