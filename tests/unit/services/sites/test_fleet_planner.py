"""What an agent's plan remembers between its looks."""

from __future__ import annotations

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, PilotSize, SubmissionPace, Thresholds
from forestay.domain.sites.launch import GIVEN_UP, LaunchState
from forestay.ports.sites.site_api import QueuedGroup, SeenLaunch, SiteDemand
from forestay.services.sites.fleet_planner import NOT_SHOWN, REMEMBERED, FleetPlanner
from forestay.services.sites.site_policy import OwnUsers, SitePolicy

NEED = Resources(cpus=1, memory=1 << 30, disk=1 << 30, wall=3600)
POLICY = SitePolicy(
    Thresholds(max_pilots=4), (PilotSize("small", NEED),), pace=SubmissionPace(first_wait=30), idle_patience=60.0
)
NOW = 1_000_000.0


def launch(name: str, *, age: float, since: float = 0.0, word: str = "", pilot: str = "") -> SeenLaunch:
    state = LaunchState.ENDED if word else LaunchState.PLANNED
    return SeenLaunch(name, f"forestay-{name}", "small", state, age, age, since, word=word, pilot=pilot)


def asked(tasks: int, *launches: SeenLaunch, idle: int = 0, inactive: int = 0) -> SiteDemand:
    return SiteDemand([QueuedGroup("g", tasks, NEED)], {"small": PilotCount(inactive, idle)}, launches)


def test_what_was_just_planned_counts_until_the_server_shows_it_or_could_have() -> None:
    fleet = FleetPlanner(POLICY)
    assert fleet.decide(asked(1), [], NOW).launches == {"small": 1}
    fleet.planned({"a": "small"}, NOW)
    assert fleet.decide(asked(1), [], NOW + NOT_SHOWN - 1).launches == {}, "it is on its way"
    assert fleet.decide(asked(2, launch("a", age=4), inactive=1), [], NOW + 4).launches == {"small": 1}, "not twice"
    assert fleet.decide(asked(1), [], NOW + NOT_SHOWN).launches == {"small": 1}


def test_a_launch_that_is_surely_not_at_the_batch_system_is_wanted_again() -> None:
    absent = launch("a", age=300)
    demand = asked(1, absent, inactive=1)
    assert FleetPlanner(POLICY).decide(demand, [], NOW).launches == {}
    assert FleetPlanner(POLICY).decide(demand, [absent], NOW).launches == {"small": 1}


def test_who_was_refused_rests_and_an_agent_that_starts_recalls_it() -> None:
    fleet = FleetPlanner(POLICY)
    fleet.refused("a", "small", NOW)
    assert fleet.decide(asked(1), [], NOW + 29).backing_off == {"small": int(1000 * (NOW + 30))}
    assert fleet.decide(asked(1), [], NOW + 30).launches == {"small": 1}
    fresh = FleetPlanner(POLICY)
    fresh.recall([launch("a", age=20, since=10, word="refused")], NOW)
    assert fresh.remembers
    assert fresh.decide(asked(1), [], NOW + 19).launches == {}
    assert fresh.decide(asked(1), [], NOW + 20).launches == {"small": 1}


def test_an_end_that_tells_nothing_of_the_batch_system_or_is_long_ago_slows_nobody() -> None:
    for ended in (
        launch("a", age=5, word=GIVEN_UP),
        launch("a", age=5, word="COMPLETED", pilot="p"),
        launch("a", age=REMEMBERED + 1, word="NODE_FAIL"),
    ):
        fleet = FleetPlanner(POLICY)
        fleet.recall([ended], NOW)
        assert fleet.decide(asked(1), [], NOW).launches == {"small": 1}, ended


def test_tasks_that_wait_beside_idle_pilots_get_their_own_after_a_while() -> None:
    fleet = FleetPlanner(POLICY)
    assert fleet.decide(asked(1, idle=1), [], NOW).launches == {}
    assert fleet.decide(asked(1, idle=1), [], NOW + 59).launches == {}
    assert fleet.decide(asked(1, idle=1), [], NOW + 60).launches == {"small": 1}
    assert fleet.decide(asked(0, idle=1), [], NOW + 61).launches == {}
    assert fleet.decide(asked(1, idle=1), [], NOW + 62).launches == {}, "they wait from now on"


def own(most: int, *, per_owner: int | None = None, **names: str) -> FleetPlanner:
    limits = Thresholds(max_pilots=most, max_per_owner=per_owner)
    return FleetPlanner(SitePolicy(limits, (PilotSize("small", NEED),), own_users=OwnUsers(names)))


def owned(pilots: dict[str, PilotCount], **tasks: int) -> SiteDemand:
    return SiteDemand([QueuedGroup(f"g/{owner}", many, NEED, owner) for owner, many in tasks.items()], pilots, ())


def test_each_owner_with_demand_and_a_unix_user_gets_pilots_of_their_own() -> None:
    fleet = own(9, ann="ann", bob="b.obrien")
    decided = fleet.decide(owned({}, ann=2, bob=1, cleo=5), [], NOW)
    assert decided.launches == {"small/ann": 2, "small/bob": 1}
    assert list(fleet.unmapped) == ["cleo"]
    assert fleet.decide(owned({"small/ann": PilotCount(idle=2)}, ann=2, bob=1), [], NOW).launches == {"small/bob": 1}
    assert not fleet.unmapped


def test_the_idle_pilots_of_one_owner_are_none_for_another() -> None:
    decided = own(9, ann="ann", bob="bob").decide(owned({"small/ann": PilotCount(idle=3)}, bob=2), [], NOW)
    assert decided.launches == {"small/bob": 2}


def test_who_has_few_pilots_comes_first_and_nobody_gets_more_than_is_allowed() -> None:
    there = {"small/ann": PilotCount(busy=2)}
    assert own(3, ann="ann", bob="bob").decide(owned(there, ann=50, bob=50), [], NOW).launches == {"small/bob": 1}
    capped = own(9, per_owner=3, ann="ann", bob="bob").decide(owned(there, ann=50, bob=50), [], NOW)
    assert capped.launches == {"small/ann": 1, "small/bob": 3}


def test_an_account_that_the_scheduler_refuses_slows_nobody_else() -> None:
    fleet = own(9, ann="ann", bob="bob")
    fleet.refused("a", "small/ann", NOW)
    assert fleet.decide(owned({}, ann=1, bob=1), [], NOW + 1).launches == {"small/bob": 1}


def test_the_same_name_is_no_unix_user_if_it_could_not_be_one() -> None:
    users = OwnUsers({"0": "zero"}, same_name=True)
    names = ("ann", "0", "1", "-u", "a b", "a/b", "../a", "", "ann\n")
    assert [users.of(owner) for owner in names] == ["ann", "zero", "", "", "", "", "", "", ""]


def test_jobs_that_were_counted_for_all_get_no_pilots_of_nobody() -> None:
    """What a server of the last release answers."""
    assert own(9, ann="ann").decide(asked(3), [], NOW).launches == {}
