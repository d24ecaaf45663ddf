"""How many pilots existed at past times, derived from their present documents.

A pilot was present from its registration until it left or fell silent, which is when its document was last changed. One that came back from silence appears to have been present
all the time; its absence is not recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forestay.domain.pilots.pilot import Pilot, PilotState


class Presence(NamedTuple):
    """The pilots of one site at the end of each step, and what they could run."""

    pilots: list[int]
    slots: list[int]
    cpus: list[int]


def presence(pilots: Iterable[Pilot], ends: Sequence[int]) -> dict[str, Presence]:
    """The pilots by site, at the end of each step; the ends are in order."""
    presences: dict[str, Presence] = {}
    for pilot in pilots:
        first = bisect_left(ends, pilot.registered)
        last = len(ends) if pilot.state is PilotState.ALIVE else bisect_left(ends, pilot.changed)
        if last <= first:
            continue
        here = presences.get(pilot.site)
        if here is None:
            here = presences[pilot.site] = Presence([0] * len(ends), [0] * len(ends), [0] * len(ends))
        for place in range(first, last):
            here.pilots[place] += 1
            here.slots[place] += pilot.slots
            here.cpus[place] += pilot.resources.cpus
    return presences
