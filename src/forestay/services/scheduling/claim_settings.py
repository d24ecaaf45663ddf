"""The settings of a server's claim dispatcher, and its counters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """Settings of the claim dispatcher; the defaults suit a store that shows writes after one second."""

    buffer: int = 2000
    """Candidates read at once."""
    low_water: int = 2000
    """With fewer left the next page is read ahead."""
    bulk: int = 500
    """Claims in one write."""
    flights: int = 2
    """Concurrent writes; another one begins only when it is at least half full."""
    gather: float = 0.002
    """How long to wait for more requests before writing, in seconds."""
    idle: float = 0.25
    """How often to check the waiting requests when nothing else happens, in seconds."""
    settle: float = 1.2
    """Seconds after which the store is certain to show a write."""
    foreign_after: float = 1.0
    """Seconds after which a request without a result is served from our fallback slots among those of other servers too."""
    far_after: float = 3.0
    """Seconds after which it is served from all slots: their fallback servers may have no pilots."""
    foreign_age: float = 3.0
    """Seconds for which jobs of other servers' slots are left to them."""
    foreign_buffer: int = 200
    hand_over: float = 4.0
    """Seconds for which gained slots are not served: their old owner may still write, and searches lag."""
    budget: int = 20_000
    """Candidates kept in all: the more lanes there are, the fewer of each."""
    look_again: float = 10.0
    """How often to search for new lanes while the known ones have jobs, in seconds."""
    look: int = 64
    """How many candidates of a lane are tried for one that fits."""
    data_first: int = 8
    """How often in a row a lane with data where the pilot runs precedes the lane that is next in turn."""


@dataclass(slots=True)
class ClaimTally:
    """Counters of the claim dispatcher, for metrics and benchmarks."""

    granted: int = 0
    first: int = 0
    """Of these, claims that were written together with their jobs."""
    lost: int = 0
    """Claims that lost against someone else's write."""
    bulks: int = 0
    pages: int = 0
    looks: int = 0
