"""The cost of each fault-tolerant pattern is measured (paper P0, section 7); `just pattern-costs` does it at full size and writes the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.system.matrix.pattern_cost import PATTERNS, Cost, measure_all
from tests.system.matrix.site import failure_site
from tests.system.matrix.submitters import Submission


@pytest.mark.ledger("P0-31")
async def test_what_recovering_costs_is_measured_for_every_way_to_submit(tmp_path: Path) -> None:
    some = [pattern for pattern in PATTERNS if pattern.name == "re-submit"]
    async with failure_site(tmp_path, free_tries="0,0") as site:
        costs = await asyncio.to_thread(measure_all, site, some, 1)
    by: dict[tuple[str, bool], Cost] = {(cost.submission, cost.failing): cost for cost in costs}
    assert set(by) == {(way.value, failing) for way in Submission for failing in (False, True)}
    for way in Submission:
        clean, hurt = by[way.value, False], by[way.value, True]
        # Everything that is counted was really counted: the host that runs the job twice speaks twice.
        assert hurt.attempts == clean.attempts + 1
        assert hurt.host_asked >= clean.host_asked + 1 >= 2
        assert hurt.wall > 0.2
        assert clean.wall > 0.2
        assert clean.notified == hurt.notified == (way is Submission.NOTIFICATION)
    # Re-submission is not seen by who submitted: no message more, in any way but that in which it counts the time.
    for way in (Submission.NOTIFICATION, Submission.FIRE_AND_FORGET):
        assert by[way.value, False].asked == by[way.value, True].asked == 1
    assert by["synchronous", True].asked <= by["synchronous", False].asked + 1
    assert by["polling", True].asked >= 3
    assert sum(cost.control_cpu + cost.host_cpu for cost in costs) > 0
