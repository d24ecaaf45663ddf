"""Tasks are shared among sites: nothing is sent for twice, nothing is forgotten, and no site gets more than it has room for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, PilotSize
from forestay.domain.sites.site_shares import SiteStatus, shares

ONE = Resources(cpus=1)
GPU = Resources(cpus=1, gpus=1)
SMALL = PilotSize("small", Resources(cpus=1, memory=1 << 30))
WIDE = PilotSize("wide", Resources(cpus=4, memory=1 << 30), slots=4)
counts = st.builds(PilotCount, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
statuses = st.builds(
    SiteStatus,
    st.just("x"),
    st.sampled_from([(SMALL,), (WIDE,), (SMALL, WIDE)]),
    st.fixed_dictionaries({}, optional={"small": counts, "wide": counts}),
    st.integers(0, 40),
    st.booleans(),
)
several = st.lists(statuses, min_size=1, max_size=4).map(
    lambda other_statuses: [replace(status, name=f"s{number}") for number, status in enumerate(other_statuses)]
)


@given(st.integers(0, 100), several)
def test_what_is_not_covered_is_shared_out_once(tasks: int, sites: list[SiteStatus]) -> None:
    given_out = shares(tasks, ONE, sites)
    assert all(0 <= part <= tasks for part in given_out.values())
    covered = {site.name: min(tasks, site.covers(ONE)) for site in sites}
    left = max(0, tasks - sum(covered.values()))
    room = sum(site.room(ONE) for site in sites)
    fresh = {name: given_out[name] - covered[name] for name in given_out}
    if left <= room:
        assert sum(fresh.values()) == left
        assert all(fresh[site.name] <= site.room(ONE) for site in sites)
    else:
        assert all(fresh[site.name] >= min(site.room(ONE), tasks - covered[site.name]) for site in sites)


@given(st.integers(0, 100), several)
def test_looking_one_after_the_other_they_send_no_more_than_is_needed(tasks: int, sites: list[SiteStatus]) -> None:
    """Each site sends for its share when it looks; in the end everything is covered once."""
    sites = [replace(site, well=True, sizes=(SMALL,), pilots={}) for site in sites]
    for _ in range(6):
        for place, site in enumerate(sites):
            part = shares(tasks, ONE, sites)[site.name]
            had = site.pilots.get("small", PilotCount()).inactive
            wanted = min(site.max_pilots, max(had, part))
            sites[place] = replace(site, pilots={"small": PilotCount(inactive=wanted)})
    sent = sum(site.pilots["small"].inactive for site in sites)
    assert sent == min(tasks, sum(site.max_pilots for site in sites))


def test_a_site_alone_is_asked_for_everything() -> None:
    assert shares(50, ONE, [SiteStatus("a", (SMALL,), {}, 10)]) == {"a": 50}


def test_shares_follow_room_and_trouble_gets_none() -> None:
    near = SiteStatus("a", (SMALL,), {}, 10)
    far = SiteStatus("b", (WIDE,), {}, 5)
    assert shares(9, ONE, [near, far]) == {"a": 3, "b": 6}
    ill = replace(far, well=False, pilots={"wide": PilotCount(inactive=2, idle=1)})
    assert shares(9, ONE, [near, ill]) == {"a": 5, "b": 4}, "idle pilots run on, waiting ones may wait long"


def test_a_site_that_cannot_run_them_is_left_out() -> None:
    accelerated = PilotSize("gpu", replace(SMALL.offers, gpus=1))
    assert shares(4, GPU, [SiteStatus("a", (SMALL,), {}, 9), SiteStatus("b", (accelerated,), {}, 9)]) == {"b": 4}
    assert shares(4, GPU, [SiteStatus("a", (SMALL,), {}, 9)]) == {}
