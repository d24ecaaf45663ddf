"""Where sub-flows go."""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.peers.peer import GRACE, Link, lease_end
from forestay.domain.peers.routing import HERE, Offer, Routed, RoutingNeed, Unroutable, expected, route, unfit

OFFERS = st.builds(
    Offer,
    name=st.sampled_from(["", "a", "b", "c", "d"]),
    cpus=st.integers(0, 8),
    memory=st.integers(0, 8),
    gpus=st.integers(0, 2),
    slots=st.integers(0, 10),
    free=st.integers(0, 10),
    queued=st.integers(0, 100),
    sent=st.integers(0, 100),
    turn=st.floats(0.1, 1000),
    speed=st.floats(0.1, 10),
    labels=st.frozensets(st.sampled_from(["x", "y"])),
    files=st.frozensets(st.sampled_from(["f", "g"])),
    cost=st.floats(0, 10),
    failures=st.integers(0, 200),
    connected=st.booleans(),
)
NEEDS = st.builds(
    RoutingNeed,
    cpus=st.integers(1, 8),
    memory=st.integers(0, 8),
    gpus=st.integers(0, 2),
    runtime=st.floats(0.1, 10_000),
    labels=st.frozensets(st.sampled_from(["x", "y"])),
    data=st.dictionaries(st.sampled_from(["f", "g"]), st.integers(0, 10**12)),
    domain=st.sampled_from(["any", "a"]),
)
MANY = st.lists(OFFERS, max_size=5, unique_by=lambda offer: offer.name)


@given(NEEDS, MANY, st.frozensets(st.sampled_from(["", "a", "b"])))
def test_the_choice_is_fit_and_none_that_is_fit_is_cheaper(
    need: RoutingNeed, offers: list[Offer], tried: frozenset[str]
) -> None:
    chosen = route(need, offers, tried=tried)
    fit = {offer.name: offer for offer in offers if not unfit(need, offer)}
    if isinstance(chosen, Unroutable):
        assert not fit
        assert chosen.reasons.keys() == {offer.name for offer in offers}
        return
    assert chosen.domain in fit
    if fit.keys() - tried:
        assert chosen.domain not in tried
    rivals = [offer for offer in fit.values() if offer.name not in tried] or list(fit.values())
    assert all(chosen.seconds <= expected(need, rival) for rival in rivals)


@given(NEEDS, MANY, st.randoms(use_true_random=False))
def test_the_order_of_offers_says_nothing(need: RoutingNeed, offers: list[Offer], luck: random.Random) -> None:
    other = list(offers)
    luck.shuffle(other)
    first, second = route(need, offers), route(need, other)
    assert isinstance(first, Routed) == isinstance(second, Routed)
    if isinstance(first, Routed) and isinstance(second, Routed):
        assert first.domain == second.domain


@given(NEEDS, OFFERS)
def test_what_makes_a_domain_worse_never_makes_it_cheaper(need: RoutingNeed, offer: Offer) -> None:
    worse = [
        replace(offer, queued=offer.queued + 1),
        replace(offer, sent=offer.sent + 1),
        replace(offer, failures=offer.failures + 1),
        replace(offer, files=frozenset()),
        replace(offer, free=max(0, offer.free - 1)),
        replace(offer, speed=offer.speed / 2),
    ]
    for other_offer in worse:
        assert expected(need, other_offer) >= expected(need, offer)
    assert expected(need, replace(offer, cost=offer.cost + 1), money=10) >= expected(need, offer, money=10)


def test_flow_refs_stay_here() -> None:
    same = Offer("", cpus=4, slots=4, free=4)
    chosen = route(RoutingNeed(), [replace(same, name="a"), same])
    assert isinstance(chosen, Routed)
    assert chosen.domain == HERE


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 600))
def test_no_request_however_late_holds_a_lease_past_the_time_at_which_work_is_moved(
    given_at: int, way: int, later: int, lease: int
) -> None:
    """Both clocks run alike and are apart by any time; the answer with the stamp takes `way` milliseconds, a request with it comes back `later`."""
    apart = 12_345
    heard = given_at + way
    link = Link("p", stamp=given_at + apart, heard=heard)
    ends = lease_end(link.stamp, lease) - apart
    arrives = heard + later
    holds = arrives < ends
    moved_at = heard + 1000 * lease + GRACE
    assert not link.lapsed(moved_at - 1, lease)
    assert link.lapsed(moved_at, lease)
    assert not holds or ends + GRACE <= moved_at


THREE = {"": (16, 1.0), "a": (40, 0.8), "b": (24, 1.6)}
"""Slots and speed of three domains."""


def simulated(
    luck: random.Random, jobs: int, domains: Mapping[str, tuple[int, float]] = THREE, spread: float = 0.1
) -> tuple[float, float, float]:
    """The sum of the times at which sub-flows end; that of a router that knows afterwards how long each takes; and the least of any assignment in any order.

    Domains of different size and speed. Sub-flows come all at once; each domain runs them in the order in which they came, and the router knows of each domain
    what it told at first and what was sent since. How long each takes is luck, within a part of what is expected, the same wherever it runs but for the domain's speed.
    """
    runtimes = [60 * luck.uniform(1 - spread, 1 + spread) for _ in range(jobs)]
    routed, knowing = _Queues(domains), _Queues(domains)
    sent = dict.fromkeys(domains, 0)
    for runtime in runtimes:
        offers = [
            Offer(name, 1, 1, 0, slots=slots, free=slots, sent=sent[name], turn=60 / speed, speed=speed)
            for name, (slots, speed) in domains.items()
        ]
        chosen = route(RoutingNeed(runtime=60), offers)
        assert isinstance(chosen, Routed)
        sent[chosen.domain] += 1
        routed.run(chosen.domain, runtime)
        knowing.run(min(domains, key=lambda name: knowing.end(name, runtime)), runtime)
    # Every slot is a machine; the shortest first on whichever place in whichever queue weighs least is the least sum of ends there is.
    weights = sorted(
        (place + 1) / speed for slots, speed in domains.values() for _ in range(slots) for place in range(jobs)
    )
    best = sum(weight * runtime for weight, runtime in zip(weights, sorted(runtimes, reverse=True), strict=False))
    return routed.total, knowing.total, best


class _Queues:
    def __init__(self, domains: Mapping[str, tuple[int, float]]) -> None:
        self.domains = domains
        self.busy = {name: [0.0] * slots for name, (slots, _) in domains.items()}
        self.total = 0.0

    def end(self, name: str, runtime: float) -> float:
        """When it would be done there."""
        return self.busy[name][0] + runtime / self.domains[name][1]

    def run(self, name: str, runtime: float) -> None:
        ends = self.end(name, runtime)
        heapq.heapreplace(self.busy[name], ends)
        self.total += ends


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3, 0.5])
def test_a_thousand_sub_flows_end_as_soon_as_if_all_had_been_known(spread: float) -> None:
    """A simulation of the pure function: what is sent and what each takes are made up, the choices are those of production.

    Held against a router that sends each, in the same order, where it knows it to end first. The order is not a router's to choose: the bound over every order, the shortest
    first, is lower the more the lengths differ, and is asked for where they do not.
    """
    for seed in range(5):
        total, knowing, best = simulated(random.Random(seed), 1000, spread=spread)
        assert total / knowing - 1 <= 0.01, f"a regret of {total / knowing - 1:.4f}"
        assert spread or total / best - 1 <= 0.01, f"a regret of {total / best - 1:.4f}"
