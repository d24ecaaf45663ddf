"""Laws of scale, small enough for every change: the simulation in arrays is that of the servers' own code, and what a job costs does not grow with their number."""

from __future__ import annotations

from typing import Any

import pytest
from bench.pilots.scale import once
from bench.pilots.scale_arrays import agrees, off, plain, simulate

SIZES = ((1_000, 40), (10_000, 100), (20_000, 200))
MADE = plain()


def small(workload: str, jobs: int, pilots: int) -> dict[str, Any]:
    return simulate(MADE, workload, jobs, pilots, "d2f2", 1)


@pytest.mark.parametrize(
    ("workload", "jobs", "pilots"), [("W1", 1_000, 40), ("W2", 1_000, 40), ("W3", 1_000, 40), ("W2", 10_000, 100)]
)
def test_the_arrays_agree_with_the_servers_own_code(workload: str, jobs: int, pilots: int) -> None:
    fields = off(small(workload, jobs, pilots), once(workload, jobs, pilots, "d2f2", 1))
    assert agrees(fields, jobs), fields


@pytest.mark.parametrize("workload", ["W1", "W2", "W3"])
def test_events_a_job_are_flat_and_the_bound_is_kept(workload: str) -> None:
    rows = [small(workload, jobs, pilots) for jobs, pilots in SIZES]
    each = [row["events"] / row["jobs"] for row in rows]
    assert max(each) <= 1.001 * min(each)
    over = [row["makespan"] / row["bound"] for row in rows]
    assert over[0] <= 1.06
    assert max(over[1:]) <= 1.02
    assert all(row["hit ratio"] >= 0.98 for row in rows[1:])
    assert all(row["storage reads"] + round(row["hit ratio"] * row["reads"]) == row["reads"] for row in rows)
