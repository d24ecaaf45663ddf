"""What an agent's plan remembers between its looks."""

from __future__ import annotations

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, PilotSize, SubmissionPace, Thresholds
from forestay.domain.sites.launch import GIVEN_UP, LaunchState
from forestay.ports.sites.site_api import QueuedGroup, SeenLaunch, SiteDemand
from forestay.services.sites.fleet_planner import NOT_SHOWN, REMEMBERED, FleetPlanner
from forestay.services.sites.site_policy import SitePolicy

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
