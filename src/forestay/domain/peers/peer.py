"""A peer: another administrative domain with its own Forestay, as this domain's administrator registered it.

Between two domains there is one lease, held by the stamps that the domain which runs things gives out: a time of its own clock, sent with every answer. A stamp that
comes back with a request holds the lease until that stamp and the lease's length. So whoever asks knows the end of every lease it could hold: nothing that it ever
sent can hold one longer than the lease's length after the newest stamp reached it, however late a request arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GRACE = 5_000
"""Milliseconds after the end of a lease in which the domain that held it has stopped what it ran."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A registered peer."""

    name: str
    url: str
    key: str
    """Its public key, by which its tokens are known; a JSON web key as text."""
    tenants: Mapping[str, str] = field(default_factory=dict)
    """Its tenants and which of ours each is here; any other of its tenants is nobody here."""
    sends: frozenset[str] = frozenset()
    """Our tenants whose sub-flows may go there."""
    lease: int = 120
    """Seconds that what it runs for us, or we for it, goes on without a word between us."""
    cost: float = 1.0
    """What a core-hour there costs, where ours costs 1."""


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of the connection to a peer."""

    peer: str
    stamp: int = 0
    """The newest that it gave us, by its clock; 0: none yet."""
    heard: int = 0
    """When that reached us, by ours. Written before the stamp is used."""
    connected: bool = False
    since: int = 0
    offer: Mapping[str, object] = field(default_factory=dict)
    """What it said of itself."""
    failures: int = 0
    """Calls without an answer since the last one with."""

    def lapsed(self, now: int, lease: int) -> bool:
        """Whether no lease that we could hold there lasts, and what ran there has been stopped."""
        return now >= self.heard + 1000 * lease + GRACE


def lease_end(stamp: int, lease: int) -> int:
    """Until when a stamp holds a lease, by the clock of who gave the stamp."""
    return stamp + 1000 * lease
