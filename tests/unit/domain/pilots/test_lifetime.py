"""Which jobs can end in the time that a pilot has left."""

from __future__ import annotations

from typing import Any

import pytest
from tests.contract.examples import job

from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.lifetime import ASSUMED, ends_in_time, time_needed


def stopped(wall: float, reason: str = "pilot-stopped") -> AttemptResult:
    return AttemptResult(Token(1, 1), "c-1", AttemptOutcome.FAILURE, reason, wall=wall)


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, ASSUMED),
        ({"expected_runtime": 40}, 40),
        ({"resources": Resources(wall=900), "expected_runtime": 40}, 900),
        ({"last": stopped(1000.2)}, 1001),
        ({"last": stopped(10.0)}, ASSUMED),
        ({"last": stopped(1000.2, "exit")}, ASSUMED),
        ({"resources": Resources(wall=900), "last": stopped(1000.2)}, 900),
    ],
)
def test_what_a_job_needs(changes: dict[str, Any], needed: int) -> None:
    document = job(**changes)
    assert time_needed(document) == needed
    assert ends_in_time(document, needed)
    assert not ends_in_time(document, needed - 1)
    assert ends_in_time(document, None)
