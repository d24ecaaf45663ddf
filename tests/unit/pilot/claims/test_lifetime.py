"""How long a pilot has to live, and what it may still begin."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer

from forestay_pilot.claims.lifetime import Lifetime, batch_job_name, least, told_by_batch_system


def test_the_batch_systems_word() -> None:
    assert told_by_batch_system({}) is None
    assert 99 < (told_by_batch_system({"SLURM_JOB_END_TIME": str(int(time.time()) + 101)}) or 0) <= 101
    assert told_by_batch_system({"PBS_WALLTIME": "3600"}) == 3600
    assert told_by_batch_system({"SLURM_JOB_END_TIME": "1"}) == 0
    assert told_by_batch_system({"SLURM_JOB_END_TIME": "soon", "PBS_WALLTIME": ""}) is None
    assert told_by_batch_system({"PBS_WALLTIME": "3600", "FORESTAY_END_TIME": str(time.time() + 60)}) < 61  # type: ignore[operator]


def test_the_least_counts() -> None:
    assert least(None, None) is None
    assert least(60.0, None) == 60.0
    assert least(60.0, 20.0) == 20.0


def test_the_batch_systems_name() -> None:
    assert batch_job_name({"SLURM_JOB_ID": "4711"}) == "4711"
    assert batch_job_name({"PBS_JOBID": "12.server"}) == "12.server"
    assert batch_job_name({}) is None


def test_without_an_end_everything_may_begin() -> None:
    endless = Lifetime(None, margin=60, grace=10)
    assert (endless.left(), endless.usable(), endless.over(), endless.must_stop()) == (None, None, False, False)
    assert endless.enough_for(1e9)


@pytest.mark.parametrize(
    ("left", "grace", "over", "stop"),
    [(200, 10, False, False), (59, 10, True, False), (29, 10, True, True), (40, 40, True, True), (50, 40, True, False)],
)
def test_the_margin(left: float, grace: float, over: bool, stop: bool) -> None:
    """In it nothing begins; half-way through, or when its grace needs it, what runs is told to end."""
    life = Lifetime(left, margin=60, grace=grace)
    assert (life.over(), life.must_stop()) == (over, stop)


def test_what_is_enough() -> None:
    life = Lifetime(200, margin=60, grace=10)
    assert life.enough_for(None)
    assert life.enough_for(160)
    assert not life.enough_for(175)


def test_a_job_whose_time_has_run_away_is_given_back_unbegun(
    server: FakeServer, pilot: Callable[..., RunningPilot]
) -> None:
    """It waited behind another until there was not enough time left for its limit."""
    first = server.submit("sleep", "1.5")
    second = server.submit("true", resources={"cpus": 1, "wall": 7})
    pilot(time_left=10.0, time_margin=2.0, batch=2)
    assert server.end_of(first)["outcome"] == "ok"
    end = server.end_of(second)
    assert (end["reason"], end["started"]) == ("not-started", None)
