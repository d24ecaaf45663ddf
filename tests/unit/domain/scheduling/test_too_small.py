"""What pilots lack for a job, in words and in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.resources import Resources, fits
from forestay.domain.scheduling.too_small import lacking, too_small

RESOURCES = st.builds(
    Resources, st.integers(1, 64), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(0, 8),
    st.none() | st.integers(1, 86_400), st.integers(1, 4),
)  # fmt: skip


@given(RESOURCES, RESOURCES)
def test_nothing_is_lacking_exactly_where_a_job_fits(need: Resources, free: Resources) -> None:
    assert (not lacking(need, free)) == fits(need, free)


@given(RESOURCES, st.lists(RESOURCES, min_size=1, max_size=5))
def test_nothing_is_said_where_one_pilot_could_run_it(need: Resources, offered: list[Resources]) -> None:
    assert bool(too_small(need, offered)) != any(fits(need, free) for free in offered)


@pytest.mark.parametrize(
    ("need", "words"),
    [
        (Resources(64, 1 << 30), "64 CPUs needed, the nearest has 8 CPUs"),
        (Resources(1, 3 << 39), "1.5 TiB of memory needed, the nearest has 24 GiB of memory"),
        (Resources(1, 0, 1, 2), "1 B of disk and 2 GPUs needed, the nearest has 0 B of disk and 0 GPUs"),
        (Resources(1, nodes=4), "4 nodes needed, the nearest has 1 node"),
    ],
)
def test_the_pilot_that_lacks_least_is_named(need: Resources, words: str) -> None:
    assert too_small(need, [Resources(8, 24 << 30), Resources(1, 1 << 20)]) == words
