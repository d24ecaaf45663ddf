"""Buckets: in no window is more spent than the limit says, whoever leases and in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.exceptions.safeguards.rate_limit import (
    DAY,
    HOUR,
    MAX_LEASES,
    MINUTE,
    NEVER,
    SLICES,
    Bucket,
    NoTokens,
    RateLimit,
    TokenLease,
    lease,
    pass_time,
    settle,
    span_in_words,
    with_limit,
)

LASTS = 30
LIMITS = st.builds(RateLimit, st.integers(1, 40), st.integers(1, 500))


def most_in_a_window(spent: list[tuple[int, int]], window: int) -> int:
    """The most that was spent in any window, closed at its beginning and open at its end."""
    return max((sum(n for at, n in spent if start <= at < start + window) for start, _ in spent), default=0)


@st.composite
def happenings(draw: st.DrawFn) -> list[tuple[str, int, int, int]]:
    """What handlers do: (what, handler, how many, how long after the thing before; a clock may go back)."""
    step = st.tuples(
        st.sampled_from(["lease", "spend", "spend", "settle", "die", "store"]),
        st.integers(0, 4),
        st.integers(1, 15),
        st.one_of(st.integers(0, 40), st.integers(-20, 300)),
    )
    return draw(st.lists(step, max_size=80))


@given(LIMITS, happenings())
def test_in_no_window_is_more_spent_than_the_limit(limit: RateLimit, steps: list[tuple[str, int, int, int]]) -> None:
    bucket = Bucket(limit)
    held: dict[int, list[tuple[TokenLease, int]]] = {handler: [] for handler in range(5)}
    spent: list[tuple[int, int]] = []
    true = 1_000
    for number, (what, handler, count, later) in enumerate(steps):
        true += max(0, later)
        read = true + min(0, later)  # a clock that is behind
        if what == "lease":
            answer = lease(bucket, name=f"l{number}", wanted=count, now=read, lasts=LASTS)
            if not isinstance(answer, NoTokens):
                bucket, taken = answer
                held[handler].append((taken, 0))
        elif what == "spend" and held[handler]:
            taken, used = held[handler].pop()
            now = min(count, taken.tokens - used) if taken.until > true else 0
            if now:
                spent.append((true, now))
            held[handler].append((taken, used + now))
        elif what == "settle" and held[handler]:
            taken, used = held[handler].pop()
            before = bucket
            bucket = settle(bucket, name=taken.id, spent=used, now=true)
            again = settle(bucket, name=taken.id, spent=0, now=true)
            assert again == bucket, "given back twice"
            assert bucket.free <= pass_time(before, true).free + taken.tokens - used
        elif what == "die":
            held[handler] = []
        else:
            bucket = Bucket.from_plain(bucket.as_plain())
        assert 0 <= bucket.free <= limit.tokens
        out = sum(token_lease.tokens for token_lease in bucket.leases) + sum(n for _, n in bucket.returning)
        assert out <= limit.tokens
        assert len(bucket.returning) <= (limit.window + LASTS) // max(1, limit.window // SLICES) + 2
    assert most_in_a_window(spent, limit.window) <= limit.tokens


@given(LIMITS, st.lists(st.tuples(st.integers(1, 20), st.integers(0, 100)), max_size=40))
def test_when_to_ask_again_is_when_there_is_enough(limit: RateLimit, steps: list[tuple[int, int]]) -> None:
    bucket, now = Bucket(limit), 0
    for number, (count, later) in enumerate(steps):
        now += later
        answer = lease(bucket, name=f"l{number}", wanted=count, least=count, now=now, lasts=LASTS)
        if isinstance(answer, NoTokens):
            assert answer.again > now
            if answer.again == NEVER:
                assert count > limit.tokens
                continue
            slack = -(-limit.window // SLICES) + 1  # a lease that still holds comes back by slices
            later_on = lease(bucket, name="x", wanted=count, least=count, now=answer.again + slack, lasts=LASTS)
            assert not isinstance(later_on, NoTokens)
        else:
            bucket, taken = answer
            assert taken.tokens == count


def test_a_dead_handlers_tokens_are_lost_for_the_lease_and_a_window_and_no_longer() -> None:
    answer = lease(Bucket(RateLimit(20, MINUTE)), name="a", wanted=20, now=0, lasts=1000)
    assert not isinstance(answer, NoTokens)
    bucket, _ = answer
    assert isinstance(lease(bucket, name="b", wanted=1, now=MINUTE, lasts=1000), NoTokens)
    assert pass_time(bucket, 1000 + MINUTE + MINUTE // SLICES).free == 20


def test_less_than_wanted_is_given_but_not_less_than_the_least() -> None:
    bucket = Bucket(RateLimit(10, MINUTE))
    answer = lease(bucket, name="a", wanted=50, least=3, now=0, lasts=1000)
    assert not isinstance(answer, NoTokens)
    assert answer[1] == TokenLease("a", 10, 1000)
    assert lease(bucket, name="a", wanted=50, least=11, now=0, lasts=1000) == NoTokens(10, NEVER)


def test_there_is_an_end_to_leases() -> None:
    bucket = Bucket(RateLimit(MAX_LEASES + 5, MINUTE))
    for number in range(MAX_LEASES):
        answer = lease(bucket, name=str(number), wanted=1, now=number, lasts=10_000)
        assert not isinstance(answer, NoTokens)
        bucket, _ = answer
    assert lease(bucket, name="one more", wanted=1, now=500, lasts=10_000) == NoTokens(5, 10_000)


def test_a_limit_that_is_lowered_frees_nothing_until_enough_came_back() -> None:
    answer = lease(Bucket(RateLimit(20, MINUTE)), name="a", wanted=15, now=0, lasts=1000)
    assert not isinstance(answer, NoTokens)
    lower = with_limit(settle(answer[0], name="a", spent=15, now=10), RateLimit(10, HOUR))
    assert lower.free == 0
    assert pass_time(lower, 2 * MINUTE).free == 0
    assert pass_time(lower, HOUR + 2 * MINUTE).free == 10
    assert with_limit(lower, lower.limit) is lower


@pytest.mark.parametrize(
    ("span", "words"),
    [(DAY, "a day"), (HOUR, "an hour"), (10 * MINUTE, "10 minutes"), (1000, "a second"), (5, "5 ms")],
)
def test_spans_in_words(span: int, words: str) -> None:
    assert span_in_words(span) == words
