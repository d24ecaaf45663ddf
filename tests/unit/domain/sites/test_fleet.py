"""How many pilots a site is sent: the paper's algorithm (section IV-A), its bounds, and the pace toward the scheduler."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import (
    FleetPlan,
    LaunchOutcome,
    PilotCount,
    PilotSize,
    SubmissionPace,
    TaskGroup,
    Thresholds,
    plan,
    size_and_owner,
    size_for,
)

SMALL = PilotSize("small", Resources(cpus=1, memory=4 << 30, disk=10 << 30, wall=3600))
LARGE = PilotSize("large", Resources(cpus=8, memory=64 << 30, disk=10 << 30, wall=7200), slots=8)
SIZES = (SMALL, LARGE)
ONE = Resources(cpus=1)
FOUR = Resources(cpus=4)
GPU = Resources(cpus=1, gpus=1)
QUICK = SubmissionPace(per_minute=1_000_000, at_once=1_000_000)

thresholds = st.builds(
    lambda most, least, idle: Thresholds(max_pilots=most, min_pilots=min(most, least), min_idle=idle),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 20),
)
counts = st.builds(PilotCount, st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
fleets = st.fixed_dictionaries({"small": counts, "large": counts}, optional={"old": counts})
groups = st.lists(
    st.builds(TaskGroup, st.uuids().map(str), st.integers(0, 80), st.sampled_from([ONE, FOUR, GPU]), st.booleans()),
    max_size=5,
)
rows = pytest.mark.ledger("P3-04")


def ask(limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount]) -> FleetPlan:
    return plan(thresholds=limits, sizes=SIZES, groups=wanted, pilots=pilots, pace=QUICK)


@rows
@given(thresholds, groups, fleets)
def test_never_above_the_greatest_number(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount]
) -> None:
    submitted = sum(pilot.submitted for pilot in pilots.values())
    decided = ask(limits, wanted, pilots)
    assert decided.total <= max(0, limits.max_pilots - submitted)


@rows
@given(thresholds, groups, fleets)
def test_never_below_the_least_number_and_the_idle_ones_are_kept(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount]
) -> None:
    submitted = sum(pilot.submitted for pilot in pilots.values())
    after = submitted + ask(limits, wanted, pilots).total
    assert after >= min(limits.min_pilots, limits.max_pilots)
    busy = sum(pilots[name].busy for name in ("small", "large"))
    others = pilots.get("old", PilotCount()).submitted
    assert after >= min(limits.max_pilots, others + busy + limits.min_idle)


@rows
@given(thresholds, groups, fleets)
def test_tasks_are_covered_or_there_is_no_room(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount]
) -> None:
    decided = ask(limits, wanted, pilots)
    after = sum(pilot.submitted for pilot in pilots.values()) + decided.total
    assert decided.uncovered == 0 or after >= limits.max_pilots
    assert set(decided.unfit) == {group.name for group in wanted if group.need is GPU}


@rows
@given(thresholds, groups, fleets, st.integers(0, 4), st.integers(1, 40))
def test_more_tasks_never_mean_fewer_pilots(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount], place: int, more: int
) -> None:
    if place >= len(wanted):
        return
    grown = [*wanted]
    grown[place] = replace(grown[place], tasks=grown[place].tasks + more)
    assert ask(limits, grown, pilots).total >= ask(limits, wanted, pilots).total


@rows
@given(thresholds, groups, fleets, st.sampled_from(["small", "large"]), st.integers(1, 10))
def test_more_pilots_that_wait_never_mean_more_are_sent(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount], size: str, more: int
) -> None:
    grown = pilots | {size: replace(pilots[size], inactive=pilots[size].inactive + more)}
    assert ask(limits, wanted, grown).total <= ask(limits, wanted, pilots).total


@rows
@given(thresholds, groups, fleets, st.integers(1, 30))
def test_more_room_never_means_fewer_pilots(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount], more: int
) -> None:
    wider = replace(limits, max_pilots=limits.max_pilots + more)
    assert ask(wider, wanted, pilots).total >= ask(limits, wanted, pilots).total


@rows
@given(thresholds, groups, fleets)
@example(
    Thresholds(max_pilots=3),
    [TaskGroup("any", 1, ONE), TaskGroup("large", 1, FOUR)],
    {"small": PilotCount(), "large": PilotCount()},
)
def test_a_second_look_sends_nothing_more(
    limits: Thresholds, wanted: list[TaskGroup], pilots: dict[str, PilotCount]
) -> None:
    """What was sent waits at the scheduler; until something changes that is enough."""
    first = ask(limits, wanted, pilots)
    later = {
        name: replace(pilot, inactive=pilot.inactive + first.launches.get(name, 0)) for name, pilot in pilots.items()
    }
    assert ask(limits, wanted, later).total == 0


@rows
def test_the_steps_of_the_paper() -> None:
    limits = Thresholds(max_pilots=10, min_pilots=2, min_idle=1)
    assert ask(limits, [], {}).launches == {"small": 2}, "minIdlePilots and minPilots, steps 11 to 14"
    tasks = [TaskGroup("a", 5, ONE)]
    assert ask(limits, tasks, {"small": PilotCount(inactive=6)}).launches == {}, "step 7: they are covered"
    assert ask(limits, tasks, {"small": PilotCount(inactive=2)}).launches == {"small": 4}, "three tasks and one idle"
    assert ask(limits, tasks, {"small": PilotCount(busy=10)}).launches == {}, "step 3: no slots are left"
    full = ask(limits, [TaskGroup("a", 50, ONE)], {"small": PilotCount(busy=4)})
    assert full.launches == {"small": 6}
    assert full.uncovered == 44


def test_a_group_is_given_the_first_size_that_fits() -> None:
    limits = Thresholds(max_pilots=10)
    assert ask(limits, [TaskGroup("a", 3, FOUR)], {}).launches == {"large": 2}, "two of four cpus run at once"
    decided = ask(limits, [TaskGroup("a", 3, GPU), TaskGroup("b", 1, replace(ONE, wall=7000))], {})
    assert decided.unfit == ("a",)
    assert decided.launches == {"large": 1}, "the small size ends too early"


def test_idle_pilots_cover_tasks_until_the_tasks_have_waited_in_spite_of_them() -> None:
    limits = Thresholds(max_pilots=10)
    idle = {"small": PilotCount(idle=3)}
    assert ask(limits, [TaskGroup("a", 3, ONE)], idle).launches == {}
    assert ask(limits, [TaskGroup("a", 3, ONE, stale=True)], idle).launches == {"small": 3}


def test_launches_keep_to_a_pace() -> None:
    pace = SubmissionPace(per_minute=30, at_once=20)
    limits = Thresholds(max_pilots=1000)
    wanted = [TaskGroup("a", 100, ONE)]
    history: list[LaunchOutcome] = []
    sent = []
    for second in range(0, 180, 10):
        now = 1000 * second
        decided = plan(thresholds=limits, sizes=SIZES, groups=wanted, pilots={}, pace=pace, history=history, now=now)
        sent.append(decided.total)
        assert decided.paced == decided.wanted - decided.total
        history += [LaunchOutcome("small", now, good=True)] * decided.total
        recent = sum(now - outcome.planned < 60_000 for outcome in history)
        assert recent <= 30
    assert sent[:3] == [20, 10, 0]
    assert sum(sent) == 90


def test_failed_launches_are_followed_by_longer_waits_and_one_probe() -> None:
    """A scheduler that refuses everything for an hour is asked a handful of times."""
    pace = SubmissionPace(first_wait=30, longest_wait=600)
    limits = Thresholds(max_pilots=100)
    wanted = [TaskGroup("a", 50, ONE)]
    history: list[LaunchOutcome] = []
    asked = []
    for second in range(0, 3600, 5):
        now = 1000 * second
        decided = plan(thresholds=limits, sizes=SIZES, groups=wanted, pilots={}, pace=pace, history=history, now=now)
        if decided.total:
            asked.append((second, decided.total))
        history += [LaunchOutcome("small", now, failed=now + 100)] * decided.total
    assert asked[0] == (0, 20), "the first look knows of nothing bad"
    assert [many for _, many in asked[1:]] == [1] * (len(asked) - 1), "then one probe at a time"
    waits = [later[0] - sooner[0] for sooner, later in pairwise(asked)]
    assert waits[:4] == [35, 65, 125, 245]
    assert max(waits) <= 605
    assert len(asked) <= 11
    good = [*history, LaunchOutcome("small", 3_600_000, good=True)]
    decided = plan(thresholds=limits, sizes=SIZES, groups=wanted, pilots={}, pace=pace, history=good, now=3_660_000)
    assert decided.total == 20, "a pilot that came ends the waiting"


def test_a_probe_under_way_is_waited_for() -> None:
    pace = SubmissionPace(first_wait=30)
    history = [LaunchOutcome("small", 0, failed=1000), LaunchOutcome("small", 40_000)]
    decided = plan(
        thresholds=Thresholds(max_pilots=9),
        sizes=SIZES,
        groups=[TaskGroup("a", 5, ONE), TaskGroup("b", 1, FOUR)],
        pilots={},
        pace=pace,
        history=history,
        now=100_000,
    )
    assert decided.launches == {"large": 1}, "another size is not held back"
    assert decided.backing_off == {"small": 31_000}


OWNERS = ["ann", "bob", "t/cleo"]
owned_groups = st.lists(
    st.builds(
        TaskGroup,
        st.uuids().map(str),
        st.integers(0, 80),
        st.sampled_from([ONE, FOUR]),
        st.booleans(),
        st.sampled_from(OWNERS),
    ),
    max_size=8,
)
owned_fleets = st.dictionaries(
    st.builds(size_for, st.sampled_from(["small", "large", "old"]), st.sampled_from(OWNERS)), counts
)


@given(
    thresholds.map(lambda limits: replace(limits, min_pilots=0, min_idle=0)),
    st.integers(1, 9),
    owned_groups,
    owned_fleets,
)
def test_pilots_that_are_one_owners_are_sent_for_that_owners_tasks_only(
    limits: Thresholds, per_owner: int, wanted: list[TaskGroup], pilots: dict[str, PilotCount]
) -> None:
    limits = replace(limits, max_per_owner=per_owner)
    sizes = [replace(size, name=size_for(size.name, owner), owner=owner) for owner in OWNERS for size in SIZES]
    decided = plan(thresholds=limits, sizes=sizes, groups=wanted, pilots=pilots, pace=QUICK)
    tasks = {owner: sum(group.tasks for group in wanted if group.owner == owner) for owner in OWNERS}
    for owner in OWNERS:
        sent = sum(many for name, many in decided.launches.items() if size_and_owner(name)[1] == owner)
        there = sum(count.submitted for name, count in pilots.items() if size_and_owner(name)[1] == owner)
        assert sent <= tasks[owner]
        assert sent <= max(0, per_owner - there)
    assert decided.total <= max(0, limits.max_pilots - sum(count.submitted for count in pilots.values()))
