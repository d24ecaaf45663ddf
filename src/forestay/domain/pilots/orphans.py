"""When silence means death: the memory and the conclusions of the orphan scanner.

The scanner never compares clocks of two machines. It remembers when it first saw a pilot's counter, by its own
monotonic time, and how long the counter has not changed since. Any number of scanners may run: each release is a
version-checked write on the claim itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from forestay.domain.pilots.pilot import Heartbeat

ALARM_SHARE = 0.2
"""A larger share of silent pilots with claims at once suggests that we cannot see them: stop and raise an alarm."""
ALARM_LEAST = 5
"""With fewer silent pilots the share is not significant."""
HOLD_BACK = 4
"""After this many times the patience a silent pilot is given up in spite of an alarm."""
AT_ONCE = 4
"""The most pilots that are given up in one scan during an alarm."""


def patience(lease: float) -> float:
    """How long a counter may stay unchanged: 1.2 leases, at least the lease and ten seconds."""
    return max(1.2 * lease, lease + 10.0)


@dataclass(frozen=True, slots=True)
class SeenPilot:
    """A pilot's counter and when this scanner saw it first."""

    counter: int
    since: float
    lease: int
    buried: bool = False
    """Silent for too long, and all its claims were released; it counts again when its counter changes."""


@dataclass(frozen=True, slots=True)
class UnlistedClaim:
    """A claim that its pilot's heartbeat did not name, and the counter at which that was seen first."""

    pilot: str
    counter: int
    since: float


@dataclass(frozen=True, slots=True)
class ScannerMemory:
    """The memory of one scanner; it starts empty and is discarded after an outage of the store."""

    pilots: Mapping[str, SeenPilot] = field(default_factory=dict)
    unnamed: Mapping[str, UnlistedClaim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of one scan of the heartbeats."""

    memory: ScannerMemory
    silent: tuple[str, ...]
    """Pilots that have been silent too long and are not buried, the longest silent first."""
    now: float


def look(memory: ScannerMemory, heartbeats: Mapping[str, Heartbeat], *, now: float) -> Scan:
    """Compare the heartbeats with those seen before; returns which pilots have been silent too long."""
    pilots: dict[str, SeenPilot] = {}
    silent: list[str] = []
    for pilot, heartbeat in heartbeats.items():
        before = memory.pilots.get(pilot)
        if before is None or heartbeat.counter > before.counter or heartbeat.lease != before.lease:
            pilots[pilot] = SeenPilot(heartbeat.counter, now, heartbeat.lease)
            continue
        pilots[pilot] = before
        if not before.buried and now - before.since >= patience(before.lease):
            silent.append(pilot)
    silent.sort(key=lambda pilot: pilots[pilot].since)
    return Scan(replace(memory, pilots=pilots), tuple(silent), now)


@dataclass(frozen=True, slots=True)
class OrphanVerdict:
    """What to do about the silent pilots of one scan."""

    dead: tuple[str, ...]
    """To be released, then buried."""
    idle: tuple[str, ...]
    """Without claims: to be buried."""
    alarm: bool
    """Too many at once: raise an alarm, and give up only those that have been silent for very long."""


def judge(scan: Scan, holding: Collection[str]) -> OrphanVerdict:
    """Decide on the silent pilots, knowing which of them still hold claims.

    Only those that hold claims are counted: pilots that died long ago may stay on heartbeat pages for a while and must
    neither raise the alarm nor count as living ones.
    """
    idle = tuple(pilot for pilot in scan.silent if pilot not in holding)
    suspects = tuple(pilot for pilot in scan.silent if pilot in holding)
    pilots = scan.memory.pilots
    watched = sum(not seen.buried for seen in pilots.values()) - len(idle)
    if len(suspects) < ALARM_LEAST or len(suspects) <= ALARM_SHARE * watched:
        return OrphanVerdict(suspects, idle, alarm=False)
    for_long = [
        suspect
        for suspect in suspects
        if scan.now - pilots[suspect].since >= HOLD_BACK * patience(pilots[suspect].lease)
    ]
    return OrphanVerdict(tuple(for_long[:AT_ONCE]), idle, alarm=True)


def bury(memory: ScannerMemory, pilots: Iterable[str]) -> ScannerMemory:
    """Record that all claims of these pilots were released."""
    changed = dict(memory.pilots)
    for pilot in pilots:
        if pilot in changed:
            changed[pilot] = replace(changed[pilot], buried=True)
    return replace(memory, pilots=changed)


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim as its job document shows it."""

    job: str
    claim: str
    pilot: str


def forgotten(
    memory: ScannerMemory, held: Iterable[HeldClaim], heartbeats: Mapping[str, Heartbeat], *, lease: int, now: float
) -> tuple[ScannerMemory, tuple[HeldClaim, ...]]:
    """The claims unknown to their own pilots: missing from two later heartbeats, or no heartbeat ever came.

    The response that contained the claim was lost. A claim that appears for a pilot already buried
    (it was written late, or no search had found it) is lost as well.
    """
    unnamed: dict[str, UnlistedClaim] = {}
    lost: list[HeldClaim] = []
    for held_claim in held:
        heartbeat = heartbeats.get(held_claim.pilot)
        seen = memory.pilots.get(held_claim.pilot)
        if seen is not None and seen.buried and (heartbeat is None or heartbeat.counter <= seen.counter):
            lost.append(held_claim)
            continue
        if heartbeat is not None and held_claim.claim in heartbeat.claims:
            continue
        counter = heartbeat.counter if heartbeat is not None else -1
        first = memory.unnamed.get(held_claim.claim)
        if first is None or first.pilot != held_claim.pilot or (first.counter < 0) != (counter < 0):
            first = UnlistedClaim(held_claim.pilot, counter, now)
        unnamed[held_claim.claim] = first
        never = heartbeat is None and now - first.since >= patience(lease)
        if never or counter >= first.counter + 2 > 1:
            lost.append(held_claim)
    return replace(memory, unnamed=unnamed), tuple(lost)
