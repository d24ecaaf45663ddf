"""Which faults a schedule has, how often, and when: all of it drawn from the seed.

Each schedule has its own mixture: most kinds are absent from most schedules, so that now and then one kind is alone, and
now and then several meet.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

RATES = (0.0, 0.0, 0.01, 0.04, 0.15)


@dataclass(slots=True)
class Chances:
    """How likely each fault of one request is."""

    request_lost: float = 0.0
    answer_lost: float = 0.0
    forked: float = 0.0
    """A request that was reported as failed arrives once more, later."""
    own_conflict: float = 0.0
    """The request is sent twice on its way; its sender gets the second one's answer."""
    partial: float = 0.0
    """Some lines of the answer say nothing clear, though they were carried out."""
    slow: float = 0.0
    read_lost: float = 0.0
    link_request_lost: float = 0.0
    link_answer_lost: float = 0.0

    @property
    def any_write(self) -> float:
        return self.request_lost + self.answer_lost + self.forked + self.own_conflict


QUIET = Chances()


def draw_chances(rng: Random) -> Chances:
    return Chances(*(rng.choice(RATES) for _ in range(9)))


class Event(NamedTuple):
    """Something that breaks, when, and for how long."""

    at: float
    kind: str
    lasts: float
    pick: float
    """Which of the servers, pilots or shards: a number between 0 and 1."""


KINDS: dict[str, tuple[float, float, float]] = {
    # how often on average in a minute, shortest, longest
    "store outage": (0.8, 1.0, 40.0),
    "primary crash": (5.0, 0.2, 3.0),
    "primary cut off": (10.0, 0.3, 12.0),
    "server kill": (3.0, 0.5, 15.0),
    "server pause": (3.0, 0.3, 30.0),
    "pilot kill": (4.0, 0.0, 0.0),
    "pilot vanish": (2.5, 0.0, 0.0),
    "pilot pause": (4.0, 1.0, 45.0),
    "pilot goodbye": (1.0, 0.0, 0.0),
    "site lost": (0.7, 0.0, 0.0),
    "reconciler kill": (1.5, 0.5, 20.0),
    "reconciler pause": (1.0, 0.5, 30.0),
    "channel break": (4.0, 0.0, 0.0),
    "partition": (2.0, 1.0, 30.0),
}


def draw_events(rng: Random, seconds: float) -> list[Event]:
    """The faults of one schedule in order."""
    events: list[Event] = []
    for kind, (often, shortest, longest) in KINDS.items():
        weight = rng.choice((0.0, 0.0, 1.0, 2.0))
        expected = often * weight * seconds / 60
        count = int(expected) + (rng.random() < expected % 1)
        for _ in range(count):
            lasts = shortest + (longest - shortest) * rng.random() ** 2
            events.append(Event(rng.random() * seconds, kind, lasts, rng.random()))
    return sorted(events)
