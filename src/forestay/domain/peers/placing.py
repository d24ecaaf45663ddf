"""Where the run of a sub-flow was placed: recorded before anything starts, also if it stays here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from forestay.domain.peers.routing import HERE


class PlacingState(StrEnum):
    """How far a placing is."""

    CHOSEN = "chosen"
    """A domain was chosen. Whether the run has begun there is unknown: the request may be in transit."""
    SENT = "sent"
    """The domain accepted it and returned the name under which it runs there."""
    OVER = "over"
    """Nothing is left to do: the parent run has received the completion, or runs the sub-flow here and receives it from the run itself."""


@dataclass(frozen=True, slots=True)
class Placing:
    """One sub-flow that may go to other domains."""

    run: str
    """The id of its run in this domain, whether it runs here or not."""
    tenant: str
    owner: str
    parent: str
    work: str
    index: int
    flow: str
    """Its version."""
    name: str
    wanted: str
    """The domain that the parent flow requests, or any."""
    params: Mapping[str, object] = field(default_factory=dict)
    above: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    at: str = HERE
    number: int = 1
    """Counts the placings; with the run's id it is the key under which another domain starts it once."""
    state: PlacingState = PlacingState.CHOSEN
    remote_run: str = ""
    tried: tuple[str, ...] = ()
    """Domains that it left because they were unreachable or stopped it."""
    cancelled: bool = False
    """The parent run has cancelled it."""

    @property
    def key(self) -> str:
        return f"{self.run}:{self.number}"

    def moved(self, to: str) -> Placing:
        """The placing in another domain, under the next number."""
        tried = tuple(dict.fromkeys((*self.tried, self.at)))
        return replace(self, at=to, number=self.number + 1, state=PlacingState.CHOSEN, remote_run="", tried=tried)

    def as_plain(self) -> dict[str, Any]:
        return asdict(self) | {"state": self.state.value, "params": dict(self.params)}


def placing_from_plain(plain: Mapping[str, Any]) -> Placing:
    lists = {name: tuple(plain[name]) for name in ("above", "holders", "held", "tried")}
    return Placing(**(dict(plain) | lists | {"state": PlacingState(plain["state"])}))
