"""When silence means death: what a scanner remembers and concludes.

The scanner never compares clocks of two machines. It remembers when it saw a pilot's counter first, by its own
monotonic time, and how long the counter has not moved since. Any number of scanners may run: each release is a
version-checked write on the very claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.domain.pilots.pilot import Beat

ALARM_SHARE = 0.2
"""More silent pilots than this in one scan looks like our own blindness: stop and call someone."""
ALARM_LEAST = 5
"""Below so many silent pilots the share says nothing."""


def patience(lease: float) -> float:
    """How long a counter may stand still: 1.2 leases, at least the lease and ten seconds."""
    return max(1.2 * lease, lease + 10.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """A pilot's counter and when this scanner saw it first."""

    counter: int
    since: float
    lease: int


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A claim that its pilot's beat did not name, and the counter at which that was seen first."""

    pilot: str
    counter: int
    since: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What one scanner knows; it starts empty and is thrown away after an outage of the store."""

    pilots: Mapping[str, Seen] = field(default_factory=dict)
    unnamed: Mapping[str, Unnamed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look at the beats showed."""

    memory: Memory
    silent: tuple[str, ...]
    alarm: bool
    """Too many at once: none of them may be released."""


def look(memory: Memory, beats: Mapping[str, Beat], *, known_dead: frozenset[str] = frozenset(), now: float) -> Scan:
    """Compare the beats with what was seen before; say which pilots have been silent too long."""
    pilots: dict[str, Seen] = {}
    silent: list[str] = []
    watched = 0
    for pilot, beat in beats.items():
        if pilot in known_dead:
            continue
        watched += 1
        before = memory.pilots.get(pilot)
        if before is None or beat.counter > before.counter or beat.lease != before.lease:
            pilots[pilot] = Seen(beat.counter, now, beat.lease)
            continue
        pilots[pilot] = before
        if now - before.since >= patience(before.lease):
            silent.append(pilot)
    alarm = len(silent) >= ALARM_LEAST and len(silent) > ALARM_SHARE * watched
    return Scan(replace(memory, pilots=pilots), tuple(silent), alarm)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim as its job document shows it."""

    job: str
    claim: str
    pilot: str


def forgotten(
    memory: Memory, held: Iterable[HeldClaim], beats: Mapping[str, Beat], *, lease: int, now: float
) -> tuple[Memory, tuple[HeldClaim, ...]]:
    """The claims that their own pilots do not know of: not named in two later beats, or no beat ever came.

    The answer that should have told the pilot of its claim was lost.
    """
    unnamed: dict[str, Unnamed] = {}
    lost: list[HeldClaim] = []
    for one in held:
        beat = beats.get(one.pilot)
        if beat is not None and one.claim in beat.claims:
            continue
        counter = beat.counter if beat is not None else -1
        first = memory.unnamed.get(one.claim)
        if first is None or first.pilot != one.pilot or (first.counter < 0 <= counter):
            first = Unnamed(one.pilot, counter, now)
        unnamed[one.claim] = first
        never = beat is None and now - first.since >= patience(lease)
        if never or counter >= first.counter + 2 > 1:
            lost.append(one)
    return replace(memory, unnamed=unnamed), tuple(lost)
