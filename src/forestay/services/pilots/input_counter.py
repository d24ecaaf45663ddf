"""Counts where the inputs of jobs came from: the pilot's own cache, a neighbour's, another host's, or storage.

Pilots tell it with the ends of attempts, and it is written nowhere: each server knows what it heard since it was started, in bounded memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.ports.clock import Clock

STEP = 600_000
"""Milliseconds."""
STEPS = 144
"""A day."""
MOST_PILOTS = 10_000
"""Of a tenant; those heard least recently are forgotten first."""
REMEMBERED = 20_000
WAYS = ("cache", "neighbour", "peer", "element")


@dataclass(slots=True)
class InputCounts:
    """The counts that one tenant's pilots reported."""

    pilots: OrderedDict[str, Counter[str]] = field(default_factory=OrderedDict)
    steps: deque[tuple[int, Counter[str]]] = field(default_factory=lambda: deque(maxlen=STEPS))
    """With the time at which each begins; steps in which nothing came are left out."""


@dataclass(slots=True)
class InputCounter:
    """The service."""

    clock: Clock
    since: int = field(init=False)
    """When this server began to count."""
    _taken: OrderedDict[str, None] = field(default_factory=OrderedDict)
    """The last claims that were counted."""
    _tenants: dict[str, InputCounts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.since = self.clock.now()

    def take(self, tenant: str, pilot: str, claim: str, staging: Sequence[Mapping[str, object]]) -> None:
        """An end has told how the inputs of a claim's job came. One that is sent again, since its answer was lost, tells nothing new."""
        ways = [str(record["from"]) for record in staging if record.get("from") in WAYS]
        if not ways or claim in self._taken:
            return
        self._taken[claim] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
        counts = self._tenants.setdefault(tenant, InputCounts())
        mine = counts.pilots.setdefault(pilot, Counter())
        counts.pilots.move_to_end(pilot)
        if len(counts.pilots) > MOST_PILOTS:
            counts.pilots.popitem(last=False)
        start = self.clock.now() // STEP * STEP
        if not counts.steps or counts.steps[-1][0] < start:
            counts.steps.append((start, Counter()))
        mine.update(ways)
        counts.steps[-1][1].update(ways)

    def of(self, tenant: str) -> InputCounts:
        return self._tenants.get(tenant) or InputCounts()
