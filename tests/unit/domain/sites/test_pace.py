"""The pace toward a batch system."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.sites.pace import Pace, full, take


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    window=st.floats(0.1, 20),
)
def test_in_no_window_is_more_asked_than_the_burst_and_the_rate_allow(
    rate: float, burst: int, gaps: list[float], window: float
) -> None:
    pace = Pace(rate, burst)
    bucket, now, turns = full(pace, now=0.0), 0.0, list[float]()
    for gap in gaps:
        now += gap
        bucket, wait = take(bucket, now=now)
        turns.append(now + wait)
    assert turns == sorted(turns), "nobody is passed by"
    for first in range(len(turns)):
        inside = sum(turns[first] <= turn <= turns[first] + window for turn in turns)
        assert inside <= burst + rate * window + 1.000001


def test_after_a_pause_as_many_as_the_burst_go_at_once_and_no_more() -> None:
    bucket = full(Pace(rate=2.0, burst=3.0), now=0.0)
    waits = []
    for _ in range(5):
        bucket, wait = take(bucket, now=100.0)
        waits.append(wait)
    assert waits == [0.0, 0.0, 0.0, 0.5, 1.0]


def test_a_clock_that_goes_back_gives_no_tokens() -> None:
    bucket, _ = take(full(Pace(1.0, 1.0), now=50.0), now=50.0)
    bucket, wait = take(bucket, now=10.0)
    assert wait == 1.0
    assert bucket.at == 50.0
