"""A peer: another administrative domain with its own Forestay, as this domain's administrator registered it.

Between two domains there is one lease, held by the stamps that the executing domain gives out: a time of its own clock, sent with every answer. A stamp that
comes back with a request extends the lease to that stamp plus the lease's length. So the requesting domain knows the end of every lease it could hold: nothing that it ever
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
    """Its public key, by which its tokens are verified; a JSON web key as text."""
    tenants: Mapping[str, str] = field(default_factory=dict)
    """Its tenants, each with the tenant of ours that it maps to; its other tenants have no access."""
    sends: frozenset[str] = frozenset()
    """Our tenants whose sub-flows may run there."""
    lease: int = 120
    """Seconds for which work that one domain runs for the other continues without contact."""
    cost: float = 1.0
    """The price of a core-hour there, where ours costs 1."""


@dataclass(frozen=True, slots=True)
class Link:
    """What is known of the connection to a peer."""

    peer: str
    stamp: int = 0
    """The newest stamp that it gave us, by its clock; 0: none yet."""
    heard: int = 0
    """When that stamp reached us, by our clock. Written before the stamp is used."""
    connected: bool = False
    since: int = 0
    offer: Mapping[str, object] = field(default_factory=dict)
    """The capacity that it reported."""
    failures: int = 0
    """Failed calls since the last successful one."""

    def lapsed(self, now: int, lease: int) -> bool:
        """Whether every lease that we could hold there has expired, and what ran there has been stopped."""
        return now >= self.heard + 1000 * lease + GRACE


def lease_end(stamp: int, lease: int) -> int:
    """Until when a stamp holds a lease, by the clock of the domain that gave it."""
    return stamp + 1000 * lease
