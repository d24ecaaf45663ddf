"""A small part of the matrix of failure class, stage and submission pattern (paper P0, section 7); `just matrix` runs all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.system.matrix.measure import measure
from tests.system.matrix.scenarios import SCENARIOS, Scenario
from tests.system.matrix.site import FailureSite, failure_site
from tests.system.matrix.submitters import Submission

SMALL = [
    ("network", "submission", Submission.SYNCHRONOUS),
    ("bad input", "submission", Submission.NOTIFICATION),
    ("preempted", "queue", Submission.POLLING),
    ("host lost", "execution", Submission.SYNCHRONOUS),
    ("disk", "execution", Submission.POLLING),
    ("no right", "execution", Submission.POLLING),
    ("bad input", "execution", Submission.FIRE_AND_FORGET),
    ("network", "staging out", Submission.NOTIFICATION),
    ("server lost", "staging in", Submission.SYNCHRONOUS),
    ("transfer", "staging out", Submission.POLLING),
    ("cleanup", "cleanup", Submission.POLLING),
]


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FailureSite]:
    async with failure_site(tmp_path_factory.mktemp("site"), free_tries="0,0") as running:
        yield running


def found(failure: str, stage: str) -> Scenario:
    (scenario,) = [
        other_scenario
        for other_scenario in SCENARIOS
        if (other_scenario.failure, other_scenario.stage) == (failure, stage)
    ]
    return scenario


@pytest.mark.ledger("P0-29")
@pytest.mark.parametrize(("failure", "stage", "way"), SMALL)
def test_a_failure_is_recovered_and_its_submitter_sees_the_outcome(
    site: FailureSite, failure: str, stage: str, way: Submission
) -> None:
    run = measure(site, found(failure, stage), way, failing=True)
    assert run.state == ("failed" if (failure, stage) == ("bad input", "execution") else "completed")
