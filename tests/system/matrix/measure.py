"""One cell of the matrix: the job without the failure, the job with it, and what the difference cost."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from tests.system.matrix.room import Plan, Room, room
from tests.system.matrix.scenarios import Scenario
from tests.system.matrix.site import FailureSite, until
from tests.system.matrix.submitters import Submission, submit

from forestay.client import BadRequest, NotAllowed

OVER = frozenset({"release", "failure", "complete", "adopt", "keep-completion", "quarantine"})


@dataclass(frozen=True)
class Run:
    """One job, from its submission to what its submitter saw."""

    state: str
    wall: float
    attempts: int
    core_seconds: float
    causes: tuple[str, ...]
    answered: tuple[str, ...]
    """By whom its failures were answered."""


def measure(site: FailureSite, scenario: Scenario, way: Submission, *, failing: bool) -> Run:
    """Run a scenario and see that everything is as it is to be."""
    with room(site, failing=failing) as where:
        plan = scenario.prepare(where)
        lost = _refused(where, plan, way) if failing and plan.again is not None else 0.0
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(plan.meanwhile)
            try:
                seen = submit(way, where.client, where.operator, site.desk, plan.specification, plan.job)
            finally:
                beside.result()  # what went wrong there is why the submitter waited in vain
        job: Any = where.operator.job(where.measured())
        assert seen.state == job["state"] == plan.state, f"the submitter saw {seen.state}, the job is {job['state']}"
        most = plan.attempts + plan.twice if failing else 1
        assert (plan.attempts if failing else 1) <= job["attempt"] <= most, f"{job['attempt']} attempts"
        causes, answered = _incidents(where, expected=failing and bool(plan.cause))
        if failing and plan.cause not in ("", "*"):
            assert set(causes) == {plan.cause}, causes
        return Run(seen.state, lost + seen.wall, job["attempt"], _core_seconds(where), causes, answered)


def _refused(where: Room, plan: Plan, way: Submission) -> float:
    """A call that is refused, and of which nothing comes to be; then what was wrong is repaired. Gives the seconds that it cost."""
    began = time.monotonic()
    with pytest.raises((BadRequest, NotAllowed)):
        submit(way, where.client, where.operator, where.site.desk, plan.specification, plan.job)
    assert not where.jobs()
    assert plan.again is not None
    plan.specification = plan.again()
    return time.monotonic() - began


def _incidents(where: Room, *, expected: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    wanted = {"job": where.measured()}
    if expected:
        until(lambda: where.operator.find_incidents(wanted).incidents, "the incident")
    incidents = where.operator.find_incidents(wanted).incidents
    whole = [where.operator.incident(incident["id"]) for incident in incidents]
    by = {decision["by"] for incident in whole for decision in incident["decisions"]}
    return tuple(sorted({incident["cause"] for incident in incidents})), tuple(sorted(by))


def _core_seconds(where: Room) -> float:
    """What all attempts together occupied, by the job's story: one core each, from the claim to its end."""
    total, began = 0.0, None
    for line in where.operator.story(where.measured())["story"]:
        at = datetime.fromisoformat(str(line["at"]))
        if line["event"] == "claim":
            began = at
        elif began is not None and line["event"] in OVER:
            total += (at - began).total_seconds()
            began = None
    return total


@dataclass(frozen=True)
class Cell:
    """What a cell of the matrix has shown."""

    failure: str
    stage: str
    submission: str
    injected: str
    recovered: str
    state: str
    attempts: int
    causes: tuple[str, ...]
    answered: tuple[str, ...]
    extra_wall: float
    extra_attempts: int
    extra_core_seconds: float


def measure_cell(site: FailureSite, scenario: Scenario, way: Submission) -> Cell:
    clean = measure(site, scenario, way, failing=False)
    hurt = measure(site, scenario, way, failing=True)
    return Cell(
        scenario.failure,
        scenario.stage,
        way.value,
        scenario.injected,
        scenario.recovered,
        hurt.state,
        hurt.attempts,
        hurt.causes,
        hurt.answered,
        round(hurt.wall - clean.wall, 2),
        hurt.attempts - clean.attempts,
        round(hurt.core_seconds - clean.core_seconds, 2),
    )
