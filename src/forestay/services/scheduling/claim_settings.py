"""The settings of a server's claim dispatcher, and its counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """How the desk works; the defaults suit a store that shows writes after one second."""

    buffer: int = 2000
    """Candidates read at once."""
    low_water: int = 2000
    """With fewer left the next page is read ahead."""
    bulk: int = 500
    """Claims in one write."""
    flights: int = 2
    """Writes under way at once; another one begins only when it is at least half full."""
    gather: float = 0.002
    """How long to wait for more requests before writing, in seconds."""
    idle: float = 0.25
    """How often to look at the waiting requests when nothing else happens, in seconds."""
    settle: float = 1.2
    """How long until the store surely shows what was written, in seconds."""
    foreign_after: float = 1.0
    """A request that found nothing for so long is served from those of other servers' slots too that would fall to us."""
    far_after: float = 3.0
    """After so long from anyone's slots: their heirs may have nobody to serve."""
    foreign_age: float = 3.0
    """Jobs of other servers' slots are left to them for so long, in seconds."""
    foreign_buffer: int = 200
    hand_over: float = 4.0
    """Slots that we gain are left alone for so long: their old owner may still write, and searches lag."""
    budget: int = 20_000
    """Candidates kept in all: the more lanes there are, the fewer of each."""
    look_again: float = 10.0
    """How often to look for new lanes while those known have work, in seconds."""
    look: int = 64
    """How many candidates of a lane are tried for one that fits."""
    data_first: int = 8
    """So often in a row a lane with data where the pilot runs goes before the lane whose turn it is."""


@dataclass(slots=True)
class ClaimTally:
    """What the desk has done, for metrics and benchmarks."""

    granted: int = 0
    first: int = 0
    """Of these, claims that were written together with their jobs."""
    lost: int = 0
    """Claims that were written but someone else's write stood."""
    bulks: int = 0
    pages: int = 0
    looks: int = 0
