"""Counts where the inputs of jobs came from: the pilot's own cache, a neighbour's, another host's, or storage.

Pilots report it with the completions of attempts, and it is not stored: each server has the counts since its start, in bounded memory.
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
"""The most pilots of a tenant; the least recently active are dropped first."""
REMEMBERED = 20_000
WAYS = ("cache", "neighbour", "peer", "element")


@dataclass(slots=True)
class InputCounts:
    """The counts that one tenant's pilots reported."""

    pilots: OrderedDict[str, Counter[str]] = field(default_factory=OrderedDict)
    steps: deque[tuple[int, Counter[str]]] = field(default_factory=lambda: deque(maxlen=STEPS))
    """The counts by step, with the time at which each begins; empty steps are left out."""


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
        """Count the inputs of a completed claim. A completion that is sent again, because its answer was lost, is not counted twice."""
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
