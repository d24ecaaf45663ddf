"""Where a sub-flow or a job is sent: a pure choice among domains by capability, capacity, data, health and cost.

Domains that cannot run it are excluded, with the reason. Of the others the one with the lowest expected cost is chosen, counted in seconds: the wait for a free
slot, the transfer of missing data, the run itself, a penalty for a domain that failed lately, and money at a rate that the administrator sets.
Sub-flows sent since a domain last reported its status are counted as queued there; otherwise everything would go to the same one until its next report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

HERE = ""
"""The name of this domain."""
ANY = "any"
FEAR = 60.0
"""The penalty in seconds for each failure in a row."""
MAX_FEAR = 3600.0


@dataclass(frozen=True, slots=True)
class RoutingNeed:
    """What is to be run."""

    cpus: int = 1
    memory: int = 0
    gpus: int = 0
    runtime: float = 60.0
    """The expected seconds in a domain of speed 1."""
    slots: int = 1
    """How many jobs of it may run at once."""
    labels: frozenset[str] = frozenset()
    """The names of the capabilities that it requires."""
    data: Mapping[str, int] = field(default_factory=dict)
    """Bytes by the name of the file."""
    domain: str = ANY
    """A domain by name, or any."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A domain as it is known now."""

    name: str
    cpus: int = 0
    memory: int = 0
    gpus: int = 0
    """Of its largest slot."""
    slots: int = 0
    free: int = 0
    queued: int = 0
    sent: int = 0
    """Sub-flows sent there since it reported this."""
    turn: float = 60.0
    """Seconds that a job there takes on average."""
    speed: float = 1.0
    labels: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    bandwidth: float = 1e8
    """Bytes per second towards it."""
    cost: float = 1.0
    failures: int = 0
    connected: bool = True


@dataclass(frozen=True, slots=True)
class Routed:
    """The choice, and what it was expected to cost in seconds."""

    domain: str
    seconds: float
    others: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unroutable:
    """No domain can run it now; why not, by domain."""

    reasons: Mapping[str, str]


def unfit(need: RoutingNeed, offer: Offer) -> str:
    """Why a domain cannot run it; empty: it can."""
    if need.domain not in (ANY, offer.name):
        return "another domain was requested"
    if not offer.connected:
        return "it is not connected"
    if not offer.slots:
        return "it has no slots"
    if need.cpus > offer.cpus or need.memory > offer.memory or need.gpus > offer.gpus:
        return "no slot there is large enough"
    if missing := sorted(need.labels - offer.labels):
        return f"it lacks {', '.join(missing)}"
    return ""


def expected(need: RoutingNeed, offer: Offer, *, money: float = 0.0) -> float:
    """The expected seconds until it is done there, plus its other costs; `money`: the seconds that one core-hour's price is worth."""
    ahead = offer.queued + offer.sent
    wait = 0.0 if ahead < offer.free else (ahead - offer.free + 1) * offer.turn / max(1, offer.slots)
    bring = sum(size for name, size in need.data.items() if name not in offer.files) / offer.bandwidth
    run = need.runtime / offer.speed
    fear = min(MAX_FEAR, FEAR * offer.failures)
    price = money * offer.cost * need.cpus * run / 3600
    return wait + bring + run + fear + price


def route(
    need: RoutingNeed, offers: Sequence[Offer], *, tried: frozenset[str] = frozenset(), money: float = 0.0
) -> Routed | Unroutable:
    """The domain with the lowest expected cost. One where it was tried is chosen only if there is no other; ties go to the first by name, to this domain before all."""
    reasons = {offer.name: why for offer in offers if (why := unfit(need, offer))}
    fit = [offer for offer in offers if offer.name not in reasons]
    fresh = [offer for offer in fit if offer.name not in tried] or fit
    if not fresh:
        return Unroutable(reasons)
    costs = {offer.name: expected(need, offer, money=money) for offer in fresh}
    best = min(costs, key=lambda name: (costs[name], name))
    return Routed(best, costs[best], {name: cost for name, cost in costs.items() if name != best})
