"""How jobs and pilots are matched: what is shared, how long is waited for data, and whether to look ahead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sharing(StrEnum):
    """Whose files a pilot's jobs can read without a transfer."""

    NONE = "none"
    """Nobody's: there are no caches, or they are not asked."""
    PILOT = "pilot"
    """Its own: the paper's single-pilot cache."""
    HOST = "host"
    """Those of every pilot on its host: the paper's cache per host."""


@dataclass(frozen=True, slots=True)
class Price:
    """What it costs to bring a file from storage instead of from the cache, so that waiting for a pilot can be weighed against it."""

    per_byte: float
    """Seconds."""
    latency: float = 0.0
    """Seconds before the first byte."""
    attempts: float = 1.0
    """Tries that a transfer takes on average."""
    local: float = 0.0
    """Seconds a byte from the cache."""

    def saved(self, size: int) -> float:
        """Seconds that so many bytes in the cache save."""
        return self.attempts * (self.latency + size * self.per_byte) - size * self.local


@dataclass(frozen=True, slots=True)
class MatchingPolicy:
    """How jobs and pilots are matched."""

    sharing: Sharing = Sharing.HOST
    wait: float = 0.0
    """Seconds for which a job is held back at most, in all, for pilots that have its data or at whose place it is to meet others; 0: never."""
    quarantine: float = 0.0
    """Seconds for which, in all, it is put aside for pilots that are busy while those who ask find something else; 0: never."""
    ahead: bool = False
    """Whether jobs whose outputs will meet are brought to one place."""
    price: Price | None = None
    """When to hold back at all; None: whenever an idle pilot elsewhere has more of the data, as in the paper."""
    sites: bool = False
    """Whether data somewhere at a site count too, after those on the host."""
    keep: float = 3600.0
    """Seconds for which it is remembered where jobs were to meet when nothing is heard of them."""


BOUND = 60.0

NO_CACHE = MatchingPolicy(Sharing.NONE)
C1 = MatchingPolicy(Sharing.HOST)
"""Cache per host."""
C2 = MatchingPolicy(Sharing.PILOT, wait=BOUND)
"""Single-pilot cache. The paper reports the same hit ratio as with C3 for chains, which only a queue that waits for data can give."""
C3 = MatchingPolicy(Sharing.HOST, wait=BOUND)
"""Cache per host with waitForData."""
LOOK_AHEAD = MatchingPolicy(Sharing.HOST, wait=BOUND, quarantine=3600.0, ahead=True, sites=True)
"""Beyond the paper, and what servers use."""
PAPER = {"none": NO_CACHE, "c1": C1, "c2": C2, "c3": C3}
